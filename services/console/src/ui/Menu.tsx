/** A menu behind a button. */
import { Menu as Base } from "@base-ui/react/menu";
import type { ReactNode } from "react";

import { buttonClass } from "./controls";
import styles from "./ui.module.css";

export interface MenuEntry {
  label: string;
  onChoose: () => void;
  isChosen?: boolean;
}

interface Props {
  label: string;
  icon: ReactNode;
  entries: MenuEntry[];
  className?: string | undefined;
}

export function Menu({ label, icon, entries, className = "" }: Props) {
  return (
    <Base.Root>
      <Base.Trigger className={`${buttonClass("quiet")} ${className}`} aria-label={label}>
        {icon}
      </Base.Trigger>
      <Base.Portal>
        <Base.Positioner sideOffset={4} align="end">
          <Base.Popup className={styles.popup}>
            {entries.map((entry) => (
              <Base.Item key={entry.label} className={styles.menuItem} onClick={entry.onChoose}>
                {entry.label}
                {entry.isChosen && " ✓"}
              </Base.Item>
            ))}
          </Base.Popup>
        </Base.Positioner>
      </Base.Portal>
    </Base.Root>
  );
}
