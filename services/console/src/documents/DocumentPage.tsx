/** One document: what is known of it, who can see it, and its passages with headings and pages. */
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link, Navigate, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, type RefObject } from "react";

import { beginDraft } from "../chat/useDraft";
import { useText } from "../messages/useText";
import { shownBytes } from "../text/bytes";
import { shownTime } from "../text/format";
import { Literal } from "../text/Literal";
import { Button, Failure, Notice } from "../ui/controls";
import { FactList, type Fact } from "../ui/FactList";
import { documentChunks, oneDocument, passage, type Chunk, type Document } from "./queries";
import { PENDING } from "./states";
import { FailureReason, Status } from "./Status";
import { useDocumentActions } from "./useDocumentActions";
import styles from "./documents.module.css";

const CHUNK_PX = 160;
const AHEAD = 10;

export function DocumentPage() {
  const { documentId } = useParams({ from: "/shell/documents/$documentId" });
  return <DocumentView key={documentId} documentId={documentId} />;
}

/** The address of a cited passage: leads to its document. */
export function PassagePage() {
  const all = useText();
  const { chunkId } = useParams({ from: "/shell/passages/$chunkId" });
  const found = useQuery(passage(chunkId));
  const documentId = found.data?.chunk?.document_id;
  if (documentId) {
    const to = "/documents/$documentId" as const;
    return <Navigate to={to} params={{ documentId }} search={{ passage: chunkId }} replace />;
  }
  return (
    <div className={styles.page}>
      <div className={styles.column}>
        {found.isPending && <p role="status">{all.loading}</p>}
        {found.error && <Failure error={found.error} onRetry={() => void found.refetch()} />}
      </div>
    </div>
  );
}

function DocumentView({ documentId }: { documentId: string }) {
  const all = useText();
  const text = all.knowledge;
  const navigate = useNavigate();
  const { passage: cited } = useSearch({ from: "/shell/documents/$documentId" });
  const found = useQuery(oneDocument(documentId));
  const actions = useDocumentActions(() => void navigate({ to: "/documents" }));
  const document = found.data;
  const frame = useRef<HTMLDivElement>(null);
  return (
    <div className={styles.page} ref={frame}>
      <div className={styles.column}>
        <Link to="/documents">{text.allDocuments}</Link>
        {found.isPending && <p role="status">{all.loading}</p>}
        {found.error && !document && <Failure error={found.error} onRetry={() => void found.refetch()} />}
        {document && (
          <>
            <header className={styles.head}>
              <h1>
                <Literal text={document.name} />
              </h1>
              <div className={styles.buttons}>
                <Button
                  kind="primary"
                  onClick={() => {
                    beginDraft(text.askAboutDocument(document.name));
                    void navigate({ to: "/" });
                  }}
                >
                  {text.askAbout}
                </Button>
                <Button disabled={PENDING.includes(document.state)} onClick={() => actions.readAgain(document)}>
                  {text.readAgain}
                </Button>
                <Button kind="danger" onClick={() => actions.remove(document)}>
                  {text.remove}
                </Button>
              </div>
            </header>
            {actions.dialogs}
            <Facts document={document} />
            {cited && <CitedPassage chunkId={cited} />}
            <Passages document={document} frame={frame} />
          </>
        )}
      </div>
    </div>
  );
}

function Facts({ document }: { document: Document }) {
  const { knowledge: text } = useText();
  const contents = [
    document.page_count > 0 ? text.pages(document.page_count) : "",
    document.chunk_count > 0 ? text.passages(document.chunk_count) : "",
  ];
  const facts: Fact[] = [
    [text.access, text.accessOwn],
    [text.kind, [document.document_type, document.media_type].filter(Boolean).join(" · ")],
    [text.date, document.document_date],
    [text.contents, contents.filter(Boolean).join(", ")],
    [text.topics, document.topics.join(", ")],
    [text.size, shownBytes(document.size_bytes)],
    [text.uploaded, shownTime(document.create_time)],
    [text.pagesWithoutText, document.pages_without_text.join(", ")],
    [text.digest, document.digest],
  ];
  return (
    <section className={styles.about}>
      <p>
        <Status document={document} />
      </p>
      {document.failure && (
        <Notice kind="bad">
          <FailureReason document={document} />
        </Notice>
      )}
      {document.description && (
        <p>
          <Literal text={document.description} />
        </p>
      )}
      <FactList facts={facts} className={styles.facts} />
      {document.notes.length > 0 && (
        <div>
          <h2>{text.notes}</h2>
          <ul>
            {document.notes.map((note, index) => (
              <li key={index}>
                <Literal text={note} />
              </li>
            ))}
          </ul>
        </div>
      )}
    </section>
  );
}

function CitedPassage({ chunkId }: { chunkId: string }) {
  const { knowledge: text } = useText();
  const found = useQuery(passage(chunkId));
  const { chunk, before = [], after = [] } = found.data ?? {};
  return (
    <section aria-label={text.citedPassage} className={styles.cited}>
      <h2>{text.citedPassage}</h2>
      {found.error && <Failure error={found.error} />}
      {[...before, ...(chunk ? [chunk] : []), ...after].map((each) => (
        <Passage key={each.chunk_id} chunk={each} isCited={each.chunk_id === chunkId} />
      ))}
    </section>
  );
}

interface PassagesProps {
  document: Document;
  frame: RefObject<HTMLDivElement | null>;
}

function Passages({ document, frame }: PassagesProps) {
  const all = useText();
  const text = all.knowledge;
  const found = useInfiniteQuery(documentChunks(document));
  const list = found.data?.pages.flatMap((page) => page.chunks) ?? [];
  const top = useRef<HTMLDivElement>(null);
  // eslint-disable-next-line react-hooks/incompatible-library -- its object is used here alone
  const virtual = useVirtualizer({
    count: list.length,
    getScrollElement: () => frame.current,
    getItemKey: (index) => list[index]?.chunk_id ?? index,
    estimateSize: () => CHUNK_PX,
    overscan: 4,
    scrollMargin: top.current?.offsetTop ?? 0,
  });
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = found;
  useEffect(() => {
    if (hasNextPage && !isFetchingNextPage && last >= list.length - AHEAD) void fetchNextPage({ cancelRefetch: false });
  });
  return (
    <section aria-label={text.passagesTitle}>
      <h2>{text.passagesTitle}</h2>
      {found.error && <Failure error={found.error} onRetry={() => void found.refetch()} />}
      {found.isPending && <p role="status">{all.loading}</p>}
      {found.isSuccess && list.length === 0 && <p className={styles.muted}>{text.noPassages}</p>}
      <div ref={top} className={styles.passages} style={{ height: virtual.getTotalSize() }}>
        {items.map((item) => {
          const chunk = list[item.index];
          return (
            chunk && (
              <div
                key={item.key}
                ref={virtual.measureElement}
                data-index={item.index}
                style={{ transform: `translateY(${String(item.start - virtual.options.scrollMargin)}px)` }}
              >
                <Passage chunk={chunk} />
              </div>
            )
          );
        })}
      </div>
      {isFetchingNextPage && <p role="status">{text.moreLoading}</p>}
    </section>
  );
}

function Passage({ chunk, isCited = false }: { chunk: Chunk; isCited?: boolean }) {
  const { knowledge: text } = useText();
  return (
    <article className={styles.passage} data-cited={isCited} data-chunk={chunk.chunk_id}>
      <header>
        <span className={styles.headings}>
          {chunk.section_path.map((heading, index) => (
            <span key={index}>
              {index > 0 && <span aria-hidden="true"> › </span>}
              <Literal text={heading} />
            </span>
          ))}
        </span>
        <small>
          {chunk.first_page > 0 && text.page(chunk.first_page, chunk.last_page)}
          {chunk.kind === "CHUNK_KIND_TABLE" && ` · ${text.table}`}
          {chunk.recognised && ` · ${text.recognised}`}
        </small>
      </header>
      <Literal text={chunk.text} />
    </article>
  );
}
