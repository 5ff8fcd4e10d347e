/** The user's documents: uploaded, found, followed while they are read, read again, deleted. */
import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useDeferredValue, useEffect, useRef } from "react";

import { ApiError } from "../api/errors";
import { api, dataOf } from "../api/client";
import { useText } from "../messages/useText";
import { shownBytes } from "../text/bytes";
import { shownTime } from "../text/format";
import { Literal } from "../text/Literal";
import { Empty, Failure, Icon } from "../ui/controls";
import { LongList } from "../ui/LongList";
import { Menu } from "../ui/Menu";
import ui from "../ui/ui.module.css";
import { ChooseFiles, DropZone } from "../uploads/DropZone";
import { UploadPanel } from "../uploads/UploadPanel";
import { useUploads } from "../uploads/useUploads";
import { documentUploads } from "./documentUploads";
import { narrowed, statesOf } from "./narrowing";
import {
  documentList,
  pendingDocuments,
  refreshDocuments,
  replaceDocument,
  type Document,
} from "./queries";
import { PENDING } from "./states";
import { FailureReason, Status } from "./Status";
import { useDocumentActions, type DocumentActions } from "./useDocumentActions";
import styles from "./documents.module.css";

const ROW_PX = 84;

export function DocumentsPage() {
  const all = useText();
  const text = all.knowledge;
  const navigate = useNavigate();
  const { q = "", state } = useSearch({ from: "/shell/documents" });
  const query = useDeferredValue(q.trim());
  const found = useInfiniteQuery(documentList({ query, states: statesOf(state) }));
  const list = found.data?.pages.flatMap((page) => page.documents) ?? [];
  const pending = usePending(list);
  const actions = useDocumentActions();
  const narrow = (change: { q?: string; state?: string }) =>
    void navigate({ to: "/documents", search: narrowed({ q, state, ...change }), replace: true });
  const isNarrowed = query !== "" || state !== undefined;
  return (
    <DropZone onFiles={(files) => documentUploads.add(files)} className={styles.page}>
      <div className={`${styles.column ?? ""} ${styles.full ?? ""}`}>
        <header className={styles.head}>
          <h1>{text.documents}</h1>
          <ChooseFiles label={text.uploadDocuments} onFiles={(files) => documentUploads.add(files)} />
          <p>{text.documentsHint}</p>
        </header>
        <UploadPanel
          uploads={documentUploads}
          renderDone={({ document, existed }) =>
            document && (
              <>
                {existed && <>{text.existed} · </>}
                <Status document={pending.get(document.document_id) ?? known(list, document)} />
              </>
            )
          }
        />
        <search className={styles.filters}>
          <input
            className={ui.input}
            type="search"
            value={q}
            maxLength={200}
            placeholder={text.searchDocuments}
            aria-label={text.searchDocuments}
            onChange={(event) => narrow({ q: event.target.value })}
          />
          <select
            className={ui.input}
            aria-label={text.state}
            value={state ?? ""}
            onChange={(event) => narrow({ state: event.target.value })}
          >
            <option value="">{text.allStates}</option>
            <option value="pending">{text.underWay}</option>
            <option value="ready">{text.states.DOCUMENT_STATE_READY}</option>
            <option value="failed">{text.states.DOCUMENT_STATE_FAILED}</option>
          </select>
        </search>
        {actions.dialogs}
        {found.error && <Failure error={found.error} onRetry={() => void found.refetch()} />}
        {found.isPending && <p role="status">{all.loading}</p>}
        {found.isSuccess && list.length === 0 && (
          <Empty title={isNarrowed ? text.noneFound : text.noDocuments}>
            {!isNarrowed && (
              <>
                <p>{text.noDocumentsHint}</p>
                <p>{text.kinds}</p>
              </>
            )}
          </Empty>
        )}
        {list.length > 0 && (
          <Rows
            list={list.map((each) => pending.get(each.document_id) ?? each)}
            actions={actions}
            hasMore={found.hasNextPage}
            onMore={() => void found.fetchNextPage({ cancelRefetch: false })}
          />
        )}
      </div>
    </DropZone>
  );
}

/** The document as the list has it, which may be newer than the answer of its upload. */
function known(list: Document[], document: Document): Document {
  return list.find((each) => each.document_id === document.document_id) ?? document;
}

/** Documents that are being read, by id. What the list shows as one and is none any more is read again. */
function usePending(list: Document[]): Map<string, Document> {
  const client = useQueryClient();
  const waiting = list.filter((each) => PENDING.includes(each.state)).map((each) => each.document_id);
  const found = useQuery(pendingDocuments(waiting.length > 0));
  const now = new Map(found.data?.documents.map((each) => [each.document_id, each]));
  const gone = waiting.filter((id) => !now.has(id)).join(" ");
  const { dataUpdatedAt } = found;
  useEffect(() => {
    if (dataUpdatedAt > 0) for (const id of gone.split(" ").filter(Boolean)) void settle(id);
    async function settle(id: string): Promise<void> {
      const call = api.GET("/v1/documents/{document_id}", { params: { path: { document_id: id } } });
      try {
        replaceDocument(client, id, await dataOf(call));
      } catch (error) {
        // Without a connection it is asked again with the next look.
        if (error instanceof ApiError && error.status === 404) replaceDocument(client, id, undefined);
      }
    }
  }, [gone, dataUpdatedAt, client]);
  // Uploads that were stored since the last look.
  const stored = useUploads(documentUploads).filter((each) => each.state === "done").length;
  const seen = useRef(stored);
  useEffect(() => {
    if (stored > seen.current) void refreshDocuments(client);
    seen.current = stored;
  }, [stored, client]);
  return now;
}

interface RowsProps {
  list: Document[];
  actions: DocumentActions;
  hasMore: boolean;
  onMore: () => void;
}

function Rows({ list, actions, hasMore, onMore }: RowsProps) {
  const { knowledge: text } = useText();
  return (
    <LongList
      label={text.documents}
      list={list}
      keyOf={(document) => document.document_id}
      rowPx={ROW_PX}
      hasMore={hasMore}
      onMore={onMore}
      render={(document) => <Row document={document} actions={actions} />}
    />
  );
}

function Row({ document, actions }: { document: Document; actions: DocumentActions }) {
  const { knowledge: text } = useText();
  const navigate = useNavigate();
  const open = { to: "/documents/$documentId", params: { documentId: document.document_id } } as const;
  const about = [
    document.document_type,
    document.document_date,
    document.page_count > 0 ? text.pages(document.page_count) : "",
    document.chunk_count > 0 ? text.passages(document.chunk_count) : "",
    shownBytes(document.size_bytes),
    shownTime(document.create_time),
  ];
  return (
    <div className={styles.row}>
      <div className={styles.rowBody}>
        <Link {...open} className={styles.name}>
          <Literal text={document.name} />
        </Link>
        <small>
          <Literal text={about.filter(Boolean).join(" · ")} />
        </small>
        <FailureReason document={document} />
      </div>
      <Status document={document} />
      <Menu
        label={text.actionsOf(document.name)}
        icon={<Icon name="more" />}
        entries={[
          { label: text.open, onChoose: () => void navigate(open) },
          { label: text.readAgain, onChoose: () => actions.readAgain(document) },
          { label: text.remove, onChoose: () => actions.remove(document) },
        ]}
      />
    </div>
  );
}
