/** Files that the steps of a run made: shown, saved, under their names. */
import { lazy, Suspense, useState } from "react";

import type { AgentResult } from "../api/types";
import { useText } from "../messages/useText";
import { shownBytes } from "../text/bytes";
import { Literal } from "../text/Literal";
import { Button } from "../ui/controls";
import { previewKind, runAddress, type FileContent } from "./content";
import { DownloadButton } from "./DownloadButton";
import styles from "./files.module.css";

const FilePreview = lazy(() => import("./FilePreview").then((loaded) => ({ default: loaded.FilePreview })));
const MOST_AT_FIRST = 5;

interface Props {
  runId: string;
  results: AgentResult[];
}

export function RunFiles({ runId, results }: Props) {
  const { knowledge: text } = useText();
  const [shown, setShown] = useState<FileContent>();
  const [isOpen, setOpen] = useState(false);
  const files = filesOf(runId, results);
  if (files.length === 0) return null;
  return (
    <section className={styles.ofRun} aria-label={text.filesOfRun}>
      <h3>{text.filesOfRun}</h3>
      <ul>
        {files.slice(0, isOpen ? undefined : MOST_AT_FIRST).map((file) => (
          <li key={`${file.address} ${file.name}`}>
            <span className={styles.name}>
              <Literal text={file.name} /> <small>{shownBytes(file.sizeBytes)}</small>
            </span>
            {previewKind(file) !== "none" && (
              <Button kind="quiet" aria-label={text.previewOf(file.name)} onClick={() => setShown(file)}>
                {text.preview}
              </Button>
            )}
            <DownloadButton file={file} isShort />
          </li>
        ))}
      </ul>
      {!isOpen && files.length > MOST_AT_FIRST && (
        <Button kind="quiet" onClick={() => setOpen(true)}>
          {text.moreOrLess(files.length)}
        </Button>
      )}
      {shown && (
        <Suspense>
          <FilePreview file={shown} onClose={() => setShown(undefined)} />
        </Suspense>
      )}
    </section>
  );
}

/** The files of all results, each once; those that charts are drawn from are shown as charts. */
function filesOf(runId: string, results: AgentResult[]): FileContent[] {
  const found = new Map<string, FileContent>();
  for (const result of results) {
    // A result may come without the lists that its schema names, such as from an older server.
    const drawn = new Set((result.charts ?? []).map((chart) => chart.specification?.digest));
    for (const file of result.files ?? []) {
      if (drawn.has(file.digest)) continue;
      found.set(`${file.digest} ${file.name}`, {
        address: runAddress(runId, file.digest),
        name: file.name,
        mediaType: file.media_type,
        sizeBytes: Number(file.size_bytes),
      });
    }
  }
  return [...found.values()];
}
