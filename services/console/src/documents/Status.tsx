/** Where a document stands, in words and as a bar while it is being read. */
import { failureOf } from "../messages/knowledge";
import { useText } from "../messages/useText";
import { Literal } from "../text/Literal";
import type { Document } from "./queries";
import styles from "./documents.module.css";

export function Status({ document }: { document: Document }) {
  const { knowledge: text } = useText();
  const { state, progress } = document;
  const isParsing = state === "DOCUMENT_STATE_PARSING";
  const isIndexing = state === "DOCUMENT_STATE_INDEXING";
  const done = isIndexing ? (progress?.chunks_indexed ?? 0) : (progress?.pages_parsed ?? 0);
  const all = isIndexing ? (progress?.chunks_total ?? 0) : (progress?.pages_total ?? 0);
  return (
    <span className={styles.status} data-state={state}>
      <span>
        {text.states[state]}
        {isParsing && `: ${text.pagesRead(done, all)}`}
        {isIndexing && all > 0 && `: ${text.passagesIndexed(done, all)}`}
        {(isParsing || isIndexing) && progress && progress.attempts > 0 && `, ${text.attempt(progress.attempts + 1)}`}
      </span>
      {(isParsing || isIndexing) &&
        (all > 0 ? (
          <progress aria-label={text.percentOf(document.name)} value={done} max={all} />
        ) : (
          <progress aria-label={text.percentOf(document.name)} />
        ))}
    </span>
  );
}

/** Why a document cannot be searched, and what helps. */
export function FailureReason({ document }: { document: Document }) {
  const { knowledge: text } = useText();
  if (!document.failure) return null;
  const { reason, message } = document.failure;
  return (
    <span className={styles.failure}>
      <Literal text={failureOf(text, reason) ?? message} />
    </span>
  );
}
