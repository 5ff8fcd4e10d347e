/** `[n]` in an answer, made into nodes of their own: the n-th source, counted from 1, if there is one. */

import { splitText, type Node } from "./nodes";

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
    return splitText(child.value, CITATION, citation);
  });
}

function citation(match: RegExpMatchArray): Node | undefined {
  const number = Number(match[1]);
  if (number < 1) return undefined;
  return {
    type: "citation",
    children: [],
    data: { hName: "cite", hProperties: { "data-source": String(number) } },
  };
}
