/** Part of a frame: the frame's number on its connection, and whether these bytes begin or end it. */
export interface FramePiece {
  index: number;
  bytes: Buffer;
  begins: boolean;
  ends: boolean;
}

const CR_LF = 2;

/**
 * Cuts a stream of RESP2 or RESP3 bytes into its top-level frames (requests or replies), however they are spread over
 * chunks. Push frames of RESP3 answer nothing and have the number -1.
 */
export class RespFrames {
  /** Elements still to come of the current frame; 0 between frames. */
  private elements = 0;
  /** Bytes of a bulk string (with its end of line) still to come. */
  private bulk = 0;
  private line = '';
  private isPush = false;
  private count = 0;

  feed(chunk: Buffer): FramePiece[] {
    const pieces: FramePiece[] = [];
    let start = 0;
    let begins = this.elements === 0;
    for (let at = 0; at < chunk.length;) {
      if (this.elements === 0) {
        this.elements = 1;
        this.isPush = chunk[at] === 0x3e;
      }
      at = this.bulk > 0 ? this.skipBulk(chunk, at) : this.readLine(chunk, at);
      if (this.elements > 0) continue;
      pieces.push({ index: this.number(), bytes: chunk.subarray(start, at), begins, ends: true });
      if (!this.isPush) this.count++;
      start = at;
      begins = true;
    }
    if (start < chunk.length) pieces.push({ index: this.number(), bytes: chunk.subarray(start), begins, ends: false });
    return pieces;
  }

  private number(): number {
    return this.isPush ? -1 : this.count;
  }

  private skipBulk(chunk: Buffer, at: number): number {
    const step = Math.min(this.bulk, chunk.length - at);
    this.bulk -= step;
    if (this.bulk === 0) this.elements--;
    return at + step;
  }

  private readLine(chunk: Buffer, at: number): number {
    const end = chunk.indexOf('\n', at);
    this.line += chunk.toString('latin1', at, end < 0 ? chunk.length : end);
    if (end < 0) return chunk.length;
    this.header(this.line.charAt(0), Number.parseInt(this.line.slice(1), 10));
    this.line = '';
    return end + 1;
  }

  private header(type: string, length: number): void {
    switch (type) {
      case '$':
      case '=':
      case '!':
        if (length >= 0) this.bulk = length + CR_LF;
        else this.elements--;
        break;
      case '*':
      case '~':
      case '>':
        this.elements += Math.max(length, 0) - 1;
        break;
      case '%':
        this.elements += 2 * length - 1;
        break;
      case '|': // attributes, which come before the element that they belong to
        this.elements += 2 * length;
        break;
      default:
        this.elements--;
    }
  }
}
