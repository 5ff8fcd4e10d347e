/** Nodes of a parsed Markdown text, as its plugins see them. */

export interface Node {
  type: string;
  value?: string;
  url?: string;
  alt?: string | null;
  children?: Node[];
  data?: { hName: string; hProperties?: Record<string, string> };
}

/** A text with a node for each match of `pattern`; a match of which `make` makes none stays text. */
export function splitText(
  value: string,
  pattern: RegExp,
  make: (match: RegExpMatchArray) => Node | undefined,
): Node[] {
  const found: Node[] = [];
  let end = 0;
  for (const match of value.matchAll(pattern)) {
    const made = make(match);
    if (!made) continue;
    if (match.index > end) found.push({ type: "text", value: value.slice(end, match.index) });
    found.push(made);
    end = match.index + match[0].length;
  }
  if (end < value.length) found.push({ type: "text", value: value.slice(end) });
  return found;
}
