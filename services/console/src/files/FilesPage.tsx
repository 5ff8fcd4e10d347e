/** The user's workspace: files of runs and uploads, shown, saved, asked about, deleted. */
import {
  infiniteQueryOptions,
  useInfiniteQuery,
  useQuery,
  useQueryClient,
} from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { useDeferredValue, useEffect, useRef, useState } from "react";

import { api, dataOf } from "../api/client";
import type { components } from "../api/schema";
import { beginDraft } from "../chat/useDraft";
import { useText } from "../messages/useText";
import { shownBytes } from "../text/bytes";
import { shownTime } from "../text/format";
import { Literal } from "../text/Literal";
import { Button, Empty, Failure, Icon } from "../ui/controls";
import { LongList } from "../ui/LongList";
import { Dialog, DialogActions } from "../ui/Dialog";
import { Menu } from "../ui/Menu";
import { RemoveDialog } from "../ui/RemoveDialog";
import ui from "../ui/ui.module.css";
import { ChooseFiles, DropZone } from "../uploads/DropZone";
import { pageUploads } from "../uploads/queue";
import { UploadPanel } from "../uploads/UploadPanel";
import { useUploads } from "../uploads/useUploads";
import { workspaceAddress, type FileContent } from "./content";
import { DownloadButton } from "./DownloadButton";
import { FilePreview } from "./FilePreview";
import styles from "./files.module.css";

type File = components["schemas"]["File"];

const KEY = ["files"];
const ROW_PX = 64;
const fileUploads = pageUploads<components["schemas"]["UploadFileResponse"]>("/v1/files");

const workspace = (query: string) =>
  infiniteQueryOptions({
    queryKey: [...KEY, query],
    queryFn: ({ pageParam }) =>
      dataOf(
        api.GET("/v1/files", {
          params: { query: { page_size: 100, page_token: pageParam, ...(query ? { query } : {}) } },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (last) => last.next_page_token || undefined,
  });

type Intent = { kind: "preview" | "versions" | "remove"; file: File };

export function FilesPage() {
  const all = useText();
  const text = all.knowledge;
  const client = useQueryClient();
  const [typed, setTyped] = useState("");
  const [intent, setIntent] = useState<Intent>();
  const query = useDeferredValue(typed.trim());
  const found = useInfiniteQuery(workspace(query));
  const list = found.data?.pages.flatMap((page) => page.files) ?? [];
  const usage = found.data?.pages[0]?.usage;
  const close = () => setIntent(undefined);
  const stored = useUploads(fileUploads).filter((each) => each.state === "done").length;
  const seen = useRef(stored);
  useEffect(() => {
    if (stored > seen.current) void client.invalidateQueries({ queryKey: KEY });
    seen.current = stored;
  }, [stored, client]);
  return (
    <DropZone onFiles={(files) => fileUploads.add(files)} className={styles.page}>
      <div className={styles.column}>
        <header className={styles.head}>
          <h1>{text.files}</h1>
          <ChooseFiles label={text.uploadFiles} onFiles={(files) => fileUploads.add(files)} />
          <p>{text.filesHint}</p>
        </header>
        <UploadPanel
          uploads={fileUploads}
          renderDone={({ file, existed }) => (existed ? text.existed : file && text.version(file.version))}
        />
        <input
          className={ui.input}
          type="search"
          value={typed}
          maxLength={200}
          placeholder={text.searchFiles}
          aria-label={text.searchFiles}
          onChange={(event) => setTyped(event.target.value)}
        />
        {usage && (
          <p className={styles.muted}>
            {text.usage(
              usage.files.toLocaleString(),
              usage.max_files.toLocaleString(),
              shownBytes(usage.size_bytes),
              shownBytes(usage.max_bytes),
            )}
          </p>
        )}
        {found.error && <Failure error={found.error} onRetry={() => void found.refetch()} />}
        {found.isPending && <p role="status">{all.loading}</p>}
        {found.isSuccess && list.length === 0 && (
          <Empty title={query ? text.noneFound : text.noFiles}>{!query && <p>{text.noFilesHint}</p>}</Empty>
        )}
        {list.length > 0 && (
          <Rows
            list={list}
            onIntent={setIntent}
            hasMore={found.hasNextPage}
            onMore={() => void found.fetchNextPage({ cancelRefetch: false })}
          />
        )}
      </div>
      {intent?.kind === "preview" && <FilePreview file={contentOf(intent.file)} onClose={close} />}
      {intent?.kind === "versions" && <Versions file={intent.file} onClose={close} />}
      {intent?.kind === "remove" && <Remove file={intent.file} onClose={close} />}
    </DropZone>
  );
}

function contentOf(file: File): FileContent {
  return {
    address: workspaceAddress(file.name),
    name: file.name,
    mediaType: file.media_type,
    sizeBytes: Number(file.size_bytes),
  };
}

interface RowsProps {
  list: File[];
  onIntent: (intent: Intent) => void;
  hasMore: boolean;
  onMore: () => void;
}

function Rows({ list, onIntent, hasMore, onMore }: RowsProps) {
  const { knowledge: text } = useText();
  return (
    <LongList
      label={text.files}
      list={list}
      keyOf={(file) => file.name}
      rowPx={ROW_PX}
      hasMore={hasMore}
      onMore={onMore}
      render={(file) => <Row file={file} onIntent={onIntent} />}
    />
  );
}

function Row({ file, onIntent }: { file: File; onIntent: (intent: Intent) => void }) {
  const { knowledge: text } = useText();
  const navigate = useNavigate();
  const about = [file.media_type, shownBytes(file.size_bytes), shownTime(file.update_time)];
  if (file.version > 1) about.push(text.version(file.version));
  return (
    <div className={styles.row}>
      <div className={styles.rowBody}>
        <button type="button" className={styles.name} onClick={() => onIntent({ kind: "preview", file })}>
          <Literal text={file.name} />
        </button>
        <small>
          <Literal text={about.filter(Boolean).join(" · ")} />
        </small>
        <small>
          {text.origins[file.origin]}
          {file.run_id && (
            <>
              {" · "}
              <Link to="/runs/$runId" params={{ runId: file.run_id }}>
                {text.toRun}
              </Link>
            </>
          )}
          {file.tainted && <strong> · {text.ofOthers}</strong>}
        </small>
      </div>
      <DownloadButton file={contentOf(file)} isShort />
      <Menu
        label={text.actionsOf(file.name)}
        icon={<Icon name="more" />}
        entries={[
          { label: text.preview, onChoose: () => onIntent({ kind: "preview", file }) },
          {
            label: text.askAbout,
            onChoose: () => {
              beginDraft(text.askAboutFile(file.name));
              void navigate({ to: "/" });
            },
          },
          { label: text.versions, onChoose: () => onIntent({ kind: "versions", file }) },
          { label: text.remove, onChoose: () => onIntent({ kind: "remove", file }) },
        ]}
      />
    </div>
  );
}

interface DialogProps {
  file: File;
  onClose: () => void;
}

function Versions({ file, onClose }: DialogProps) {
  const all = useText();
  const text = all.knowledge;
  const found = useQuery({
    queryKey: [...KEY, "versions", file.name],
    queryFn: () => dataOf(api.GET("/v1/files/{name}/versions", { params: { path: { name: file.name } } })),
  });
  return (
    <Dialog title={text.versions} onClose={onClose}>
      <p>
        <Literal text={file.name} />
      </p>
      {found.error && <Failure error={found.error} onRetry={() => void found.refetch()} />}
      {found.isPending && <p role="status">{all.loading}</p>}
      <ul className={styles.versions} aria-label={text.versionsOf(file.name)}>
        {found.data?.versions.map((each) => (
          <li key={each.version}>
            <span>
              {text.version(each.version)}
              <small>
                {[text.origins[each.origin], shownBytes(each.size_bytes), shownTime(each.create_time)].join(" · ")}
              </small>
            </span>
            <DownloadButton
              isShort
              file={{
                address: workspaceAddress(file.name, each.version),
                name: file.name,
                mediaType: each.media_type,
                sizeBytes: Number(each.size_bytes),
              }}
            />
          </li>
        ))}
      </ul>
      <DialogActions>
        <Button onClick={onClose}>{all.close}</Button>
      </DialogActions>
    </Dialog>
  );
}

function Remove({ file, onClose }: DialogProps) {
  const { knowledge: text } = useText();
  const client = useQueryClient();
  return (
    <RemoveDialog
      title={text.removeFile}
      name={file.name}
      hint={text.removeFileHint}
      label={text.remove}
      onRemove={() => dataOf(api.DELETE("/v1/files/{name}", { params: { path: { name: file.name } } }))}
      onRemoved={async () => {
        await client.invalidateQueries({ queryKey: KEY });
        onClose();
      }}
      onClose={onClose}
    />
  );
}
