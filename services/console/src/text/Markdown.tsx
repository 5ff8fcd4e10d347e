/**
 * Markdown of models, rendered without HTML and without anything that is fetched. Every character of an answer
 * can be read: what looks like HTML is text, and one tilde strikes nothing through.
 *
 * There is no image element at all: an image's address would carry data to any host. A link shows
 * where it leads. A text is parsed block by block: while it grows only its last one is parsed again, and
 * when it is complete none.
 */
import { createContext, lazy, memo, Suspense, useContext, type ReactNode } from "react";
import ReactMarkdown, { type Components, type ExtraProps } from "react-markdown";
import remarkCjkFriendly from "remark-cjk-friendly";
import remarkGfm from "remark-gfm";
import remend from "remend";

import { useText } from "../messages/useText";
import { markdownBlocks } from "./blocks";
import { remarkCitations } from "./citations";
import { remarkFormulas, withoutFormulas } from "./formulas";
import { linkTarget } from "./links";
import { remarkLiteralHtml } from "./literalHtml";
import styles from "./text.module.css";

interface Props {
  text: string;
  isGrowing?: boolean;
  /** What stands for `[n]`; nothing if there is no such source. */
  renderCitation?: (number: number) => ReactNode;
}

/** Sources are known after the text: so they reach citations without the text being parsed again. */
const CitationContext = createContext<Props["renderCitation"]>(undefined);

export function Markdown({ text, isGrowing = false, renderCitation }: Props) {
  const blocks = markdownBlocks(text);
  return (
    <CitationContext value={renderCitation}>
      <div className={styles.markdown} dir="auto">
        {blocks.map((block, index) => (
          <Block key={index} text={isGrowing && index === blocks.length - 1 ? remend(block) : block} />
        ))}
      </div>
    </CitationContext>
  );
}

/** Loaded with the first formula; where that fails, its source is shown. */
const Formula = lazy(() => import("./Formula").catch(() => ({ default: Source })));

const PLUGINS: Parameters<typeof ReactMarkdown>[0]["remarkPlugins"] = [
  [remarkGfm, { singleTilde: false }],
  remarkCjkFriendly,
  remarkLiteralHtml,
  remarkFormulas,
  remarkCitations,
];

/** One block; exported for tests. */
export const Block = memo(function Block({ text }: { text: string }) {
  return (
    <ReactMarkdown
      skipHtml
      remarkPlugins={PLUGINS}
      urlTransform={(url) => linkTarget(url)?.href ?? ""}
      components={COMPONENTS}
    >
      {withoutFormulas(text)}
    </ReactMarkdown>
  );
});

const COMPONENTS = {
  "math-source": ({ node }: ExtraProps) => {
    const source = String(node?.properties["data-source"] ?? "");
    return (
      <Suspense fallback={<Source source={source} />}>
        <Formula source={source} isDisplayed={node?.properties["data-display"] === "true"} />
      </Suspense>
    );
  },
  cite: ({ node }) => <Cited number={Number(node?.properties["data-source"])} />,
  a: ({ href, children }) => <Link href={href}>{children}</Link>,
  img: ({ alt }) => <ImageText alt={alt} />,
  table: ({ children }) => (
    <div className={styles.tableFrame} tabIndex={0}>
      <table>{children}</table>
    </div>
  ),
  // A heading of an answer is none of the page.
  h1: ({ children }) => <h3>{children}</h3>,
  h2: ({ children }) => <h4>{children}</h4>,
  h3: ({ children }) => <h5>{children}</h5>,
  h4: ({ children }) => <h6>{children}</h6>,
  h5: ({ children }) => <h6>{children}</h6>,
  input: ({ checked }) => <span aria-hidden="true">{checked ? "☑ " : "☐ "}</span>,
} as Components;

function Source({ source }: { source: string }) {
  return <code>{source}</code>;
}

function Cited({ number }: { number: number }) {
  const shown = useContext(CitationContext)?.(number);
  return shown ?? `[${String(number)}]`;
}

function Link({ href, children }: { href: string | undefined; children: ReactNode }) {
  const target = linkTarget(href);
  if (!target) return <>{children}</>;
  return (
    <a href={target.href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
      <span className={styles.host}> ({target.host})</span>
    </a>
  );
}

function ImageText({ alt }: { alt: string | undefined }) {
  const text = useText();
  return <span className={styles.image}>{text.imageLeftOut(alt ?? "")}</span>;
}
