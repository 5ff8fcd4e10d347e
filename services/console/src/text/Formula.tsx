/** One formula as MathML: elements and attributes that are named here, without HTML, styles or addresses. */
import { createElement, type ReactNode } from "react";
import temml from "temml";

interface Built {
  type?: string;
  text?: string;
  attributes?: Record<string, string>;
  children?: Built[];
}

const ELEMENTS = new Set(
  ("math menclose merror mfrac mi mmultiscripts mn mo mover mpadded mphantom mprescripts mroot mrow ms mspace " +
    "msqrt mstyle msub msubsup msup mtable mtd mtext mtr munder munderover").split(" "),
);
const ATTRIBUTES = new Set(
  ("accent accentunder columnalign columnspan depth display displaystyle fence form height largeop linethickness " +
    "lspace mathvariant maxsize minsize movablelimits notation rowspan rspace scriptlevel separator stretchy " +
    "symmetric voffset width").split(" "),
);

export default function Formula({ source, isDisplayed }: { source: string; isDisplayed: boolean }) {
  const built = parsed(source, isDisplayed);
  return built ? <>{shown(built, 0)}</> : <code>{source}</code>;
}

/** Elements of a formula; nothing if it is no LaTeX. */
function parsed(source: string, displayMode: boolean): Built | undefined {
  try {
    return temml.__renderToMathMLTree(source, { displayMode, throwOnError: true, maxExpand: 200 }) as Built;
  } catch {
    return undefined;
  }
}

function shown(node: Built, key: number): ReactNode {
  if (node.text !== undefined && node.type === undefined) return node.text;
  const children = node.children?.map(shown);
  if (node.type === undefined || !ELEMENTS.has(node.type)) return children;
  const kept = Object.entries(node.attributes ?? {}).filter(([name]) => ATTRIBUTES.has(name));
  return createElement(node.type, { key, ...Object.fromEntries(kept) }, ...(children ?? []));
}
