/** A file as what it is: images drawn, CSV as a table, other texts literally. Nothing of it runs. */
import { useQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";

import type { Table } from "../api/types";
import { ResultTable } from "../chat/ResultTable";
import { useText } from "../messages/useText";
import { shownBytes } from "../text/bytes";
import { Literal } from "../text/Literal";
import { Button, Failure, Notice } from "../ui/controls";
import { Dialog, DialogActions } from "../ui/Dialog";
import { isTooLarge, previewKind, readContent, type FileContent } from "./content";
import { parseCsv } from "./csv";
import { DownloadButton } from "./DownloadButton";
import styles from "./files.module.css";

const MOST_ROWS = 10_000;
const MOST_CHARACTERS = 200_000;

interface Props {
  file: FileContent;
  onClose: () => void;
}

export function FilePreview({ file, onClose }: Props) {
  const all = useText();
  const text = all.knowledge;
  const kind = previewKind(file);
  return (
    <Dialog title={text.preview} onClose={onClose} isWide>
      <div className={styles.preview}>
        <p>
          <Literal text={file.name} /> <small>{shownBytes(file.sizeBytes)}</small>
        </p>
        {kind === "none" ? (
          <Notice>{text.noPreview}</Notice>
        ) : isTooLarge(file) ? (
          <Notice>{text.tooLargeToShow}</Notice>
        ) : (
          <Content file={file} />
        )}
        <DialogActions>
          <DownloadButton file={file} />
          <Button onClick={onClose}>{all.close}</Button>
        </DialogActions>
      </div>
    </Dialog>
  );
}

function Content({ file }: { file: FileContent }) {
  const all = useText();
  const found = useQuery({
    queryKey: ["file", file.address],
    queryFn: ({ signal }) => readContent(file, signal),
    staleTime: 0,
    gcTime: 0, // contents are large, and may change under their name
  });
  if (found.error) return <Failure error={found.error} onRetry={() => void found.refetch()} />;
  if (!found.data) return <p role="status">{all.loading}</p>;
  if (previewKind(file) === "image") return <Picture content={found.data} name={file.name} />;
  return <Words content={found.data} file={file} />;
}

function Picture({ content, name }: { content: Blob; name: string }) {
  // Set on the element, and taken back with it: an address belongs to one content.
  const draw = useCallback(
    (image: HTMLImageElement | null) => {
      if (!image) return undefined;
      const address = URL.createObjectURL(content);
      image.src = address;
      return () => URL.revokeObjectURL(address);
    },
    [content],
  );
  return <img ref={draw} className={styles.picture} alt={name} />;
}

function Words({ content, file }: { content: Blob; file: FileContent }) {
  const all = useText();
  const { data } = useQuery({
    queryKey: ["text", file.address, content.size],
    queryFn: () => content.text(),
    gcTime: 0,
  });
  if (data === undefined) return <p role="status">{all.loading}</p>;
  return previewKind(file) === "table" ? <CsvTable text={data} file={file} /> : <Listing text={data} name={file.name} />;
}

function CsvTable({ text, file }: { text: string; file: FileContent }) {
  const table = useMemo(() => tableOf(parseCsv(text, MOST_ROWS + 2)), [text]);
  return table ? (
    <ResultTable table={table} name={file.name.replace(/\.\w+$/, "")} />
  ) : (
    <Listing text={text} name={file.name} />
  );
}

/** A table whose first row names the columns; undefined if there is nothing to draw. */
function tableOf(rows: string[][]): Table | undefined {
  const [head, ...body] = rows;
  if (!head || head.length > 500) return undefined;
  const width = head.length;
  const shown = body.slice(0, MOST_ROWS).map((row) => head.map((_, column) => row[column] ?? ""));
  return {
    columns: head.map((name, index) => ({ name: name || `${String(index + 1)}`, type: "COLUMN_TYPE_STRING" })),
    rows: shown,
    row_count: String(shown.length),
    truncated: body.length > MOST_ROWS || body.some((row) => row.length > width),
  } as unknown as Table;
}

function Listing({ text, name }: { text: string; name: string }) {
  const { knowledge: words } = useText();
  return (
    <>
      {text.length > MOST_CHARACTERS && <Notice>{words.cut}</Notice>}
      <pre className={styles.listing} tabIndex={0} role="region" aria-label={words.previewOf(name)}>
        <Literal text={text.slice(0, MOST_CHARACTERS)} />
      </pre>
    </>
  );
}
