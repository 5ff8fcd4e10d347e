/** Characters that a reader cannot see, or that change the order of what is read. */

export interface Span {
  text: string;
  /** True: `text` is the name of an invisible character, such as `\u{202E}`. */
  isHidden: boolean;
}

// Controls but newline and tab, format characters (bidirectional, zero-width, tags), separators of lines
// and paragraphs, unassigned and private ones, and letters that are drawn as nothing.
// eslint-disable-next-line no-misleading-character-class -- each is meant alone
const HIDDEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cn}\p{Co}\p{Cs}\u115F\u1160\u3164\uFFA0\u034F\u17B4\u17B5\u180B-\u180F\u2800\uFE00-\uFE0F\u{E0100}-\u{E01EF}]/u;

/** Splits a text at its invisible characters, each of which becomes a span with its name. */
export function reveal(text: string): Span[] {
  const spans: Span[] = [];
  let seen = "";
  for (const character of text) {
    if (character === "\n" || character === "\t" || !HIDDEN.test(character)) {
      seen += character;
      continue;
    }
    if (seen) spans.push({ text: seen, isHidden: false });
    seen = "";
    const hex = (character.codePointAt(0) ?? 0).toString(16).toUpperCase();
    spans.push({ text: `\\u{${hex}}`, isHidden: true });
  }
  if (seen) spans.push({ text: seen, isHidden: false });
  return spans;
}
