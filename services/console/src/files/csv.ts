/** CSV as tables: quoted cells, any line ends, and the separator that the first line shows (RFC 4180). */

const SEPARATORS = [",", ";", "\t"];

/** Rows of a CSV text, `mostRows` at most. A quote that is not closed ends with the text. */
export function parseCsv(text: string, mostRows: number): string[][] {
  const content = text.replace(/^\uFEFF/, "");
  const separator = separatorOf(content);
  const rows: string[][] = [];
  let row: string[] = [];
  let at = 0;
  while (at < content.length && rows.length < mostRows) {
    const [cell, end] = content[at] === '"' ? quoted(content, at + 1) : [undefined, at];
    const stop = next(content, end, separator);
    row.push((cell ?? "") + content.slice(end, stop));
    at = stop + 1;
    if (content[stop] === separator) {
      if (at === content.length) row.push("");
      continue;
    }
    if (content[stop] === "\r" && content[at] === "\n") at += 1;
    rows.push(row);
    row = [];
  }
  if (row.length > 0 && rows.length < mostRows) rows.push(row);
  return rows;
}

/** The text of a quoted cell, and the place behind its last quote. */
function quoted(content: string, start: number): [string, number] {
  let text = "";
  let at = start;
  for (;;) {
    const quote = content.indexOf('"', at);
    if (quote < 0) return [text + content.slice(at), content.length];
    text += content.slice(at, quote);
    if (content[quote + 1] !== '"') return [text, quote + 1];
    text += '"';
    at = quote + 2;
  }
}

function next(content: string, start: number, separator: string): number {
  let at = start;
  while (at < content.length && content[at] !== separator && content[at] !== "\n" && content[at] !== "\r") at += 1;
  return at;
}

function separatorOf(content: string): string {
  const line = content.slice(0, 10_000).split(/[\r\n]/, 1)[0] ?? "";
  const counts = SEPARATORS.map((separator) => line.split(separator).length);
  return SEPARATORS[counts.indexOf(Math.max(...counts))] ?? ",";
}
