/** A part of a page that files can be dropped on, and the button that chooses them. */
import { useRef, useState, type DragEvent, type ReactNode } from "react";

import { useText } from "../messages/useText";
import { Button, Icon, Notice } from "../ui/controls";
import styles from "./uploads.module.css";

interface ZoneProps {
  onFiles: (files: File[]) => void;
  className?: string | undefined;
  children: ReactNode;
}

export function DropZone({ onFiles, className = "", children }: ZoneProps) {
  const { knowledge: text } = useText();
  const [depth, setDepth] = useState(0);
  const [hadFolders, setHadFolders] = useState(false);
  const holdsFiles = (event: DragEvent) => event.dataTransfer.types.includes("Files");
  const drop = (event: DragEvent) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    setDepth(0);
    const { files, folders } = droppedFiles(event.dataTransfer);
    setHadFolders(folders > 0);
    if (files.length > 0) onFiles(files);
  };
  return (
    <div
      className={`${styles.zone ?? ""} ${className}`}
      onDragEnter={(event) => holdsFiles(event) && setDepth((before) => before + 1)}
      onDragLeave={(event) => holdsFiles(event) && setDepth((before) => Math.max(0, before - 1))}
      onDragOver={(event) => holdsFiles(event) && event.preventDefault()}
      onDrop={drop}
    >
      {children}
      {hadFolders && (
        <Notice kind="warn" role="status">
          {text.foldersSkipped}
        </Notice>
      )}
      {depth > 0 && (
        <div className={styles.drop} aria-hidden="true">
          <Icon name="upload" /> {text.dropHere}
        </div>
      )}
    </div>
  );
}

function droppedFiles(transfer: DataTransfer): { files: File[]; folders: number } {
  const items = [...transfer.items].filter((item) => item.kind === "file");
  const files: File[] = [];
  for (const item of items) {
    const file = item.getAsFile();
    if (file && !item.webkitGetAsEntry()?.isDirectory) files.push(file);
  }
  return { files, folders: items.length - files.length };
}

interface ButtonProps {
  label: string;
  onFiles: (files: File[]) => void;
}

export function ChooseFiles({ label, onFiles }: ButtonProps) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <>
      <Button kind="primary" onClick={() => input.current?.click()}>
        <Icon name="upload" /> {label}
      </Button>
      <input
        ref={input}
        type="file"
        multiple
        hidden
        aria-label={label}
        onChange={(event) => {
          onFiles([...(event.target.files ?? [])]);
          event.target.value = ""; // the same file may be chosen again
        }}
      />
    </>
  );
}
