/**
 * LaTeX in an answer: `$$…$$`, `\[…\]`, `\(…\)`, and `$…$` where it cannot be an amount of money.
 *
 * Markdown would take its underscores, stars and backslashes for its own, so formulas are made into words
 * that Markdown leaves alone before it reads the text, and into nodes after. Code keeps what it holds.
 */
import { splitText, type Node } from "./nodes";

const CODE = "(?<code>`{3,}[^]*?(?:`{3,}|$)|~{3,}[^]*?(?:~{3,}|$)|`[^`\\n]{1,2000}`)";
/** `\[1\]` is an escaped citation. */
const DISPLAYED = "\\$\\$(?<dollars>[^$]{1,2000})\\$\\$|\\\\\\[(?!\\d{1,4}\\\\\\])(?<brackets>[^]{1,2000}?)\\\\\\]";
const PARENTHESES = "\\\\\\((?<parentheses>[^\\n]{1,2000}?)\\\\\\)";
/** In a row of a table, a dollar sign in one cell and one in another enclose no formula. */
const OTHER_CELL = "(?=[^$|\\n]{0,500}\\|[^$\\n]{0,500}\\$)(?<=(?:^|\\n)[ ]{0,8}\\|[^\\n]{0,1000})";
/** `revenue ($)` is a unit, and `$HOME_DIR/$USER` are variables. */
const DOLLAR = `(?<![\\\\$\\w])\\$(?![)\\]*]|${OTHER_CELL})(?<dollar>[^\\s$](?:[^$\\n]{0,500}[^\\s$])?)\\$(?![\\dA-Z_\${])`;
const SPANS = new RegExp(`${CODE}|${DISPLAYED}|${PARENTHESES}|${DOLLAR}`, "g");
/** What prose between two amounts of money does not have. */
const LATEX = /[\\^_{}]|^[a-z]$/i;
const WORD = /\uE000((?:[0-9a-f]{2})+)\uE001/g;

/** The text with each formula as one word, which `remarkFormulas` knows. */
export function withoutFormulas(markdown: string): string {
  return markdown.replace(SPANS, (whole, ...rest) => {
    const found = rest.at(-1) as Record<string, string | undefined>;
    if (found["code"] !== undefined) return whole;
    if (found["dollar"] !== undefined && !LATEX.test(found["dollar"])) return whole;
    return `\uE000${encode(whole)}\uE001`;
  });
}

/** Plugin of remark: the words of `withoutFormulas` as elements `math-source`. */
export function remarkFormulas() {
  return (tree: unknown) => {
    split(tree as Node);
  };
}

function split(node: Node): void {
  // Indented code, addresses and descriptions of images are known once Markdown has been read.
  if (node.value !== undefined) node.value = restored(node.value);
  if (node.url !== undefined) node.url = restored(node.url);
  if (node.alt) node.alt = restored(node.alt);
  if (!node.children) return;
  node.children = node.children.flatMap((child) => {
    if (child.type === "text" && child.value?.includes("\uE000")) return splitText(child.value, WORD, formula);
    split(child);
    return [child];
  });
}

function formula(word: RegExpMatchArray): Node {
  const whole = decode(word[1] ?? "");
  const width = whole.startsWith("$") && !whole.startsWith("$$") ? 1 : 2;
  const source = whole.slice(width, -width).trim();
  const hProperties = { "data-source": source, "data-display": String(/^(\$\$|\\\[)/.test(whole)) };
  return { type: "formula", children: [], data: { hName: "math-source", hProperties } };
}

function restored(value: string): string {
  return value.replace(WORD, (_, hex: string) => decode(hex));
}

function encode(source: string): string {
  return [...new TextEncoder().encode(source)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

function decode(hex: string): string {
  return new TextDecoder().decode(Uint8Array.from(hex.match(/../g) ?? [], (pair) => parseInt(pair, 16)));
}
