/** `[n]` in an answer, made into nodes of their own: the n-th source, counted from 1. */

interface Node {
  type: string;
  value?: string;
  children?: Node[];
  data?: { hName: string; hProperties: Record<string, string> };
}

const CITATION = /\[(\d{1,4})\]/g;

/** Plugin of remark. Code and texts of links stay as they are; numbers without a source too. */
export function remarkCitations({ sources }: { sources: number }) {
  return (tree: unknown) => split(tree as Node, sources);
}

function split(node: Node, sources: number): void {
  if (!node.children || node.type === "link" || node.type === "linkReference") return;
  node.children = node.children.flatMap((child) => {
    if (child.type !== "text" || child.value === undefined) {
      split(child, sources);
      return [child];
    }
    return pieces(child.value, sources);
  });
}

function pieces(value: string, sources: number): Node[] {
  const found: Node[] = [];
  let end = 0;
  for (const match of value.matchAll(CITATION)) {
    const number = Number(match[1]);
    if (number < 1 || number > sources) continue;
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
