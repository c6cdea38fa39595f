export interface Column {
  readonly title: string;
  readonly align?: 'left' | 'right';
}

/** A table in text, with a line under its head. */
export function formatTable(columns: readonly Column[], rows: readonly (readonly string[])[]): string {
  const widths = columns.map(({ title }, i) => Math.max(title.length, ...rows.map((row) => (row[i] ?? '').length)));
  const line = (cells: readonly string[]): string =>
    columns
      .map(({ align }, i) => {
        const cell = cells[i] ?? '';
        return align === 'right' ? cell.padStart(widths[i]!) : cell.padEnd(widths[i]!);
      })
      .join('  ')
      .trimEnd();
  const head = line(columns.map(({ title }) => title));
  const rule = widths.map((width) => '─'.repeat(width)).join('──');
  return [head, rule, ...rows.map(line)].map((text) => `  ${text}`).join('\n');
}

export function formatCount(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}
