/** A modal dialog: focus stays in it, Escape closes it unless it must be answered. */
import { Dialog as Base } from "@base-ui/react/dialog";
import type { ReactNode } from "react";

import styles from "./ui.module.css";

interface Props {
  title: string;
  children: ReactNode;
  /** Unset: the dialog stays until its question is settled. */
  onClose?: () => void;
  /** For tables and listings. */
  isWide?: boolean;
}

export function Dialog({ title, children, onClose, isWide = false }: Props) {
  return (
    <Base.Root open onOpenChange={(isOpen) => !isOpen && onClose?.()} disablePointerDismissal={!onClose}>
      <Base.Portal>
        <Base.Backdrop className={styles.backdrop} />
        <Base.Popup className={styles.dialog} data-wide={isWide}>
          <Base.Title>{title}</Base.Title>
          {children}
        </Base.Popup>
      </Base.Portal>
    </Base.Root>
  );
}

export function DialogActions({ children }: { children: ReactNode }) {
  return <div className={styles.dialogActions}>{children}</div>;
}
