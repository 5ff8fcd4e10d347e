/** `[n]` in an answer, made into nodes of their own: the n-th source, counted from 1, if there is one. */

import type { Node } from "./literalHtml";

const CITATION = /\[(\d{1,4})\]/g;

/** Plugin of remark. Code and texts of links stay as they are. */
export function remarkCitations() {
  return (tree: unknown) => split(tree as Node);
}

function split(node: Node): void {
  if (!node.children || node.type === "link" || node.type === "linkReference") return;
  node.children = node.children.flatMap((child) => {
    if (child.type !== "text" || child.value === undefined) {
      split(child);
      return [child];
    }
    return pieces(child.value);
  });
}

function pieces(value: string): Node[] {
  const found: Node[] = [];
  let end = 0;
  for (const match of value.matchAll(CITATION)) {
    const number = Number(match[1]);
    if (number < 1) continue;
    if (match.index > end) found.push({ type: "text", value: value.slice(end, match.index) });
    found.push({
      type: "citation",
      children: [],
      data: { hName: "cite", hProperties: { "data-source": String(number) } },
    });
    end = match.index + match[0].length;
  }
  if (end < value.length) found.push({ type: "text", value: value.slice(end) });
  return found;
}
