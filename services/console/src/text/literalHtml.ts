/**
 * HTML in an answer is shown as the text that it is: `List<String>` and `<order_id>` are no elements. A line
 * break, raised and lowered text are what they say.
 */

import type { Node } from "./nodes";

const BREAK = /^<br\s*\/?>$/i;
const SHIFTED = /^<(su[bp])>$/i;
const HOLDS_BLOCKS = new Set(["root", "blockquote", "list", "listItem", "footnoteDefinition"]);

/** Plugin of remark. */
export function remarkLiteralHtml() {
  return (tree: unknown) => {
    rewrite(tree as Node);
  };
}

function rewrite(node: Node): void {
  if (!node.children) return;
  node.children = HOLDS_BLOCKS.has(node.type) ? node.children.map(block) : inline(node.children);
  for (const child of node.children) rewrite(child);
}

function block(node: Node): Node {
  if (node.type !== "html") return node;
  return { type: "paragraph", children: [text(node.value ?? "")] };
}

function inline(nodes: Node[]): Node[] {
  const found: Node[] = [];
  for (let at = 0; at < nodes.length; at += 1) {
    const node = nodes[at];
    if (!node) continue;
    const name = node.type === "html" ? SHIFTED.exec(node.value ?? "")?.[1]?.toLowerCase() : undefined;
    const end = name ? nodes.findIndex((each, place) => place > at && closes(each, name)) : -1;
    if (name && end > at) {
      found.push({ type: "shifted", children: nodes.slice(at + 1, end), data: { hName: name } });
      at = end;
    } else {
      found.push(node.type === "html" ? text(node.value ?? "") : node);
    }
  }
  return found;
}

function closes(node: Node, name: string): boolean {
  return node.type === "html" && node.value?.toLowerCase() === `</${name}>`;
}

function text(value: string): Node {
  return BREAK.test(value.trim()) ? { type: "break" } : { type: "text", value };
}
