import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** A file of the built library that its package does not export. */
export function libraryFile(file: string): string {
  return join(dirname(fileURLToPath(import.meta.resolve('nestjs-redis-streams-mq'))), file);
}
