/** Uploads under way and what became of them. */
import type { ReactNode } from "react";

import { ApiError } from "../api/errors";
import { failureOf } from "../messages/knowledge";
import { useText } from "../messages/useText";
import { shownBytes } from "../text/bytes";
import { Literal } from "../text/Literal";
import { Button, Icon } from "../ui/controls";
import type { Upload, Uploads } from "./queue";
import { UnreadableFile } from "./sending";
import { useUploads } from "./useUploads";
import styles from "./uploads.module.css";

const MOST_SHOWN = 50;

interface PanelProps<Result> {
  uploads: Uploads<Result>;
  /** What is shown of an upload that is done, beside its name. */
  renderDone: (result: Result) => ReactNode;
}

export function UploadPanel<Result>({ uploads, renderDone }: PanelProps<Result>) {
  const { knowledge: text } = useText();
  const list = useUploads(uploads);
  if (list.length === 0) return null;
  const done = list.filter((each) => each.state === "done").length;
  // What still needs the user comes first; of the rest the latest.
  const shown = list.toSorted((a, b) => rank(a) - rank(b) || b.id - a.id).slice(0, MOST_SHOWN);
  return (
    <section className={styles.panel} aria-label={text.uploads}>
      <header>
        <h2 role="status">{text.uploadsOf(done, list.length)}</h2>
        <Button kind="quiet" onClick={() => uploads.clear()}>
          {text.clearFinished}
        </Button>
      </header>
      <ul>
        {shown.map((upload) => (
          <li key={upload.id} data-state={upload.state}>
            <Entry upload={upload} uploads={uploads} renderDone={renderDone} />
          </li>
        ))}
      </ul>
      {list.length > shown.length && <p>{text.moreWaiting(list.length - shown.length)}</p>}
    </section>
  );
}

function rank({ state }: Upload<unknown>): number {
  return { failed: 0, interrupted: 1, storing: 2, sending: 3, waiting: 4, done: 5, cancelled: 6 }[state];
}

interface EntryProps<Result> extends PanelProps<Result> {
  upload: Upload<Result>;
}

function Entry<Result>({ upload, uploads, renderDone }: EntryProps<Result>) {
  const { knowledge: text } = useText();
  const { id, name, state } = upload;
  const isOpen = state === "waiting" || state === "sending" || state === "storing" || state === "interrupted";
  return (
    <>
      <span className={styles.name}>
        <Literal text={name} /> <small>{shownBytes(upload.sizeBytes)}</small>
      </span>
      <span className={styles.state}>
        {state === "done" && upload.result !== undefined ? (
          renderDone(upload.result)
        ) : (
          <>
            {text.uploadStates[state]}
            {state === "sending" && ` ${String(Math.floor(upload.sent * 100))} %`}
            {state === "interrupted" && `. ${text.triesAgain}`}
          </>
        )}
      </span>
      {(state === "sending" || state === "storing") && (
        <progress aria-label={text.percentOf(name)} value={upload.sent} max={1} />
      )}
      {state === "failed" && <FailureOf error={upload.failure} />}
      <span className={styles.buttons}>
        {state === "interrupted" && (
          <Button kind="quiet" onClick={() => uploads.again(id)}>
            {text.tryNow}
          </Button>
        )}
        {(state === "failed" || state === "cancelled") && !(upload.failure instanceof UnreadableFile) && (
          <Button kind="quiet" onClick={() => uploads.again(id)}>
            {text.tryAgain}
          </Button>
        )}
        {isOpen && (
          <Button kind="quiet" aria-label={text.cancelUpload(name)} onClick={() => uploads.cancel(id)}>
            <Icon name="close" />
          </Button>
        )}
      </span>
    </>
  );
}

function FailureOf({ error }: { error: Error | undefined }) {
  const all = useText();
  const text = all.knowledge;
  const known = error instanceof ApiError ? failureOf(text, error.reason) : undefined;
  const other = error instanceof ApiError ? error.message : all.noConnection;
  const said = error instanceof UnreadableFile ? text.fileUnreadable : other;
  return <span className={styles.failure}>{known ?? said}</span>;
}
