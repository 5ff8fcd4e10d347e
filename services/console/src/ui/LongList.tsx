/** A list of any length in a frame that scrolls: what is in view is drawn, more is fetched ahead of it. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, type ReactNode } from "react";

import styles from "./longList.module.css";

/** So many rows before the last that is known, the next ones are fetched. */
const AHEAD = 20;

interface Props<T> {
  label: string;
  list: readonly T[];
  keyOf: (each: T) => string;
  /** Height of a row until it is measured. */
  rowPx: number;
  hasMore: boolean;
  onMore: () => void;
  render: (each: T) => ReactNode;
}

export function LongList<T>({ label, list, keyOf, rowPx, hasMore, onMore, render }: Props<T>) {
  const frame = useRef<HTMLDivElement>(null);
  // eslint-disable-next-line react-hooks/incompatible-library -- its object is used here alone
  const virtual = useVirtualizer({
    count: list.length,
    getScrollElement: () => frame.current,
    getItemKey: (index) => (index < list.length ? keyOf(list[index] as T) : index),
    estimateSize: () => rowPx,
    overscan: 8,
  });
  const items = virtual.getVirtualItems();
  const last = items.at(-1)?.index ?? 0;
  useEffect(() => {
    if (hasMore && last >= list.length - AHEAD) onMore();
  });
  return (
    <div ref={frame} className={styles.frame} tabIndex={0} role="region" aria-label={label}>
      <ul style={{ height: virtual.getTotalSize() }}>
        {items.map((item) =>
          item.index < list.length ? (
            <li
              key={item.key}
              ref={virtual.measureElement}
              data-index={item.index}
              data-key={item.key}
              aria-setsize={hasMore ? -1 : list.length}
              aria-posinset={item.index + 1}
              style={{ transform: `translateY(${String(item.start)}px)` }}
            >
              {render(list[item.index] as T)}
            </li>
          ) : null,
        )}
      </ul>
    </div>
  );
}
