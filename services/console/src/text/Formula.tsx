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
  ("accent accentunder columnalign columnspan display displaystyle fence form largeop mathvariant movablelimits " +
    "notation rowspan scriptlevel separator stretchy symmetric").split(" "),
);
/** Attributes that are lengths: longer ones would move a formula over the text around it. */
const LENGTHS = new Set("depth height linethickness lspace maxsize minsize rspace width".split(" "));
const LENGTH = /^(-?\d{1,2}(?:\.\d+)?)(em|ex|px|pt)$|^0$/;
const PER_EM: Record<string, number> = { em: 1, ex: 2, px: 16, pt: 12 };
const MAX_EM = 5;

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
  const kept = Object.entries(node.attributes ?? {}).filter(
    ([name, value]) => ATTRIBUTES.has(name) || (LENGTHS.has(name) && isShort(value)),
  );
  return createElement(node.type, { key, ...Object.fromEntries(kept) }, ...(children ?? []));
}

function isShort(value: string): boolean {
  const length = LENGTH.exec(value);
  return length !== null && Math.abs(Number(length[1] ?? 0)) <= MAX_EM * (PER_EM[length[2] ?? "em"] ?? 0);
}
