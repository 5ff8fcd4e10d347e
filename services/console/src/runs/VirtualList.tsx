/** A list of which only what is in view is drawn, once it is long. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState, type ReactNode } from "react";

import { useText } from "../messages/useText";
import { Button } from "../ui/controls";
import styles from "./runs.module.css";

/** A shorter list is drawn whole, so that the browser finds and prints all of it. */
export const LONG = 30;
/** A longer list is never drawn whole: the page would stand still. */
const LONGEST_WHOLE = 3000;

interface Props {
  label: string;
  keys: string[];
  render: (index: number) => ReactNode;
  estimatePx: number;
  /** The item to scroll to, whenever `revealed` changes. */
  index?: number;
  revealed?: unknown;
  className?: string | undefined;
  /** Called when all of it is drawn, or again only what is in view. */
  onWhole?: (isWhole: boolean) => void;
}

export function VirtualList(props: Props) {
  const { runs: text } = useText();
  const [isWhole, setWhole] = useState(false);
  const { length } = props.keys;
  if (length <= LONG) return <Short {...props} />;
  if (length > LONGEST_WHOLE) return <Long {...props} />;
  const toggle = () => {
    setWhole(!isWhole);
    props.onWhole?.(!isWhole);
  };
  return (
    <>
      <Button kind="quiet" className={styles.drawAll} onClick={toggle}>
        {isWhole ? text.drawView : text.drawAll}
      </Button>
      {isWhole ? <Short {...props} /> : <Long {...props} />}
    </>
  );
}

function Short({ label, keys, render, className }: Props) {
  return (
    <ol className={className} aria-label={label}>
      {keys.map((key, index) => (
        <li key={key}>{render(index)}</li>
      ))}
    </ol>
  );
}

function Long({ label, keys, render, estimatePx, index = -1, revealed, className = "" }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  // eslint-disable-next-line react-hooks/incompatible-library -- its object is used here alone
  const virtual = useVirtualizer({
    count: keys.length,
    getScrollElement: () => frame.current,
    estimateSize: () => estimatePx,
    getItemKey: (at) => keys[at] ?? at,
    overscan: 8,
  });
  useEffect(() => {
    if (index >= 0) virtual.scrollToIndex(index, { align: "start" });
    // eslint-disable-next-line react-hooks/exhaustive-deps -- scrolls when asked to, not when the list grows
  }, [revealed]);
  return (
    <div className={styles.longFrame} ref={frame} tabIndex={0} role="region" aria-label={label}>
      <ol
        className={`${className} ${styles.longList ?? ""}`}
        style={{ height: virtual.getTotalSize() }}
        aria-label={label}
      >
        {virtual.getVirtualItems().map((item) => (
          <li
            key={item.key}
            ref={virtual.measureElement}
            data-index={item.index}
            aria-setsize={keys.length}
            aria-posinset={item.index + 1}
            style={{ transform: `translateY(${String(item.start)}px)` }}
          >
            {render(item.index)}
          </li>
        ))}
      </ol>
    </div>
  );
}
