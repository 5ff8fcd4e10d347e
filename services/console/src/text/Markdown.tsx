/**
 * Markdown of models, rendered without HTML and without anything that is fetched.
 *
 * There is no image element at all: an image's address would carry data to any host. A link shows
 * where it leads. While the text grows only its last block is parsed again.
 */
import { memo, type ReactNode } from "react";
import ReactMarkdown, { type Components } from "react-markdown";
import remarkGfm from "remark-gfm";
import remend from "remend";

import { useText } from "../messages/useText";
import { markdownBlocks } from "./blocks";
import { remarkCitations } from "./citations";
import { linkTarget } from "./links";
import styles from "./text.module.css";

interface Props {
  text: string;
  isGrowing?: boolean;
  /** Number of sources, and what stands for `[n]`. */
  sources?: number;
  renderCitation?: (number: number) => ReactNode;
}

export function Markdown({ text, isGrowing = false, sources = 0, renderCitation }: Props) {
  const cite = { sources, ...(renderCitation ? { renderCitation } : {}) };
  if (!isGrowing) {
    return (
      <div className={styles.markdown} dir="auto">
        <Block text={text} {...cite} />
      </div>
    );
  }
  const blocks = markdownBlocks(text);
  return (
    <div className={styles.markdown} dir="auto">
      {blocks.map((block, index) => (
        <Block key={index} text={index === blocks.length - 1 ? remend(block) : block} {...cite} />
      ))}
    </div>
  );
}

const Block = memo(function Block({ text, sources = 0, renderCitation }: Omit<Props, "isGrowing">) {
  return (
    <ReactMarkdown
      skipHtml
      remarkPlugins={[remarkGfm, [remarkCitations, { sources: renderCitation ? sources : 0 }]]}
      urlTransform={(url) => linkTarget(url)?.href ?? ""}
      components={{
        ...COMPONENTS,
        cite: ({ node }) => renderCitation?.(Number(node?.properties["data-source"])),
      }}
    >
      {text}
    </ReactMarkdown>
  );
});

const COMPONENTS: Components = {
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
};

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
