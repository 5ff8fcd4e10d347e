/**
 * The turns of a conversation: all of them while they are few, those in view when they are many.
 *
 * Of a long conversation what is not in view is neither drawn nor fetched. It stays at its end while
 * that grows, and where it is when earlier turns are put before it.
 */
import { useVirtualizer, type VirtualItem } from "@tanstack/react-virtual";
import { useEffect, useEffectEvent, useLayoutEffect, useRef, useState, type RefObject } from "react";

import type { Run } from "../api/types";
import { Turn, type TurnProps } from "./Turn";
import styles from "./chat.module.css";

/** A shorter conversation is drawn whole. */
export const LONG = 80;
const TURN_PX = 260;
const GAP_PX = 32;
/** Turns from its beginning at which a long conversation fetches earlier ones by itself. */
const NEAR_BEGIN = 3;
const GESTURES = ["wheel", "touchmove", "pointerdown", "keydown"];

interface Props extends Pick<TurnProps, "onAsk" | "onEdit"> {
  runs: Run[];
  frame: RefObject<HTMLDivElement | null>;
  /** The run that the address names; scrolled to once it is there. */
  wanted: string | undefined;
  /** Called when the beginning of what is there comes into view. */
  onNearBegin: () => void;
}

export function WholeTurns({ runs, wanted, onAsk, onEdit }: Props) {
  const isThere = wanted !== undefined && runs.some((run) => run.run_id === wanted);
  useEffect(() => {
    if (isThere) document.getElementById(`run-${wanted}`)?.scrollIntoView({ block: "start" });
  }, [isThere, wanted]);
  return runs.map((run, index) => (
    <div key={run.run_id} id={`run-${run.run_id}`}>
      <Turn run={run} isLast={index === runs.length - 1} onAsk={onAsk} onEdit={onEdit} />
    </div>
  ));
}

export function TurnsInView({ runs, frame, wanted, onNearBegin, onAsk, onEdit }: Props) {
  const list = useRef<HTMLDivElement>(null);
  const margin = useMargin(frame, list);
  // eslint-disable-next-line react-hooks/incompatible-library -- its object is used here alone
  const virtual = useVirtualizer({
    count: runs.length,
    getScrollElement: () => frame.current,
    estimateSize: () => TURN_PX,
    getItemKey: (index) => runs[index]?.run_id ?? index,
    gap: GAP_PX,
    scrollMargin: margin,
    overscan: 3,
    anchorTo: "end",
    followOnAppend: true,
    scrollEndThreshold: 60,
  });
  useLayoutEffect(() => {
    // What is above stays above when its answer comes, in whichever direction the user goes.
    Object.assign(virtual, { shouldAdjustScrollPositionOnItemSizeChange: isAbove });
  }, [virtual]);
  const items = virtual.getVirtualItems();
  const first = items[0]?.index ?? 0;
  // Where it begins to be drawn it stands at its begin for a moment: only scrolling there fetches.
  const nearBegin = useEffectEvent(() => {
    if (virtual.scrollDirection === "backward") onNearBegin();
  });
  useEffect(() => {
    if (first < NEAR_BEGIN) nearBegin();
  }, [first, runs.length]);
  const at = wanted === undefined ? -1 : runs.findIndex((run) => run.run_id === wanted);
  const isThere = at >= 0;
  const reveal = useEffectEvent(() => {
    if (isThere) virtual.scrollToIndex(at, { align: "start" });
    else if (wanted === undefined) virtual.scrollToEnd();
  });
  useEffect(() => reveal(), [wanted, isThere]);
  const giveWay = useEffectEvent(() => virtual.cancelScroll());
  useEffect(() => {
    const element = frame.current;
    // A user who scrolls overrides a scroll to a turn that is still being corrected.
    const give = () => giveWay();
    for (const gesture of GESTURES) element?.addEventListener(gesture, give, { passive: true });
    return () => {
      for (const gesture of GESTURES) element?.removeEventListener(gesture, give);
    };
  }, [frame]);
  return (
    <div
      ref={list}
      className={styles.turnsInView}
      style={{ height: virtual.getTotalSize() }}
      role="feed"
      aria-busy="false"
      data-turns={runs.length}
    >
      {items.map((item) => {
        const run = runs[item.index];
        return (
          run && (
            <div
              key={item.key}
              id={`run-${run.run_id}`}
              ref={virtual.measureElement}
              data-index={item.index}
              style={{ transform: `translateY(${String(item.start - margin)}px)` }}
            >
              <Turn
                run={run}
                isLast={item.index === runs.length - 1}
                position={item.index + 1}
                size={runs.length}
                onAsk={onAsk}
                onEdit={onEdit}
              />
            </div>
          )
        );
      })}
    </div>
  );
}

function isAbove(item: VirtualItem, _delta: number, { scrollOffset }: { scrollOffset: number | null }) {
  return item.end <= (scrollOffset ?? 0);
}

/** Pixels above the list in its frame, such as notices, which may come and go. */
function useMargin(
  frame: RefObject<HTMLElement | null>,
  list: RefObject<HTMLElement | null>,
): number {
  const [margin, setMargin] = useState(0);
  useLayoutEffect(() => {
    const [outer, inner] = [frame.current, list.current];
    if (!outer || !inner?.parentElement) return undefined;
    const observer = new ResizeObserver(() => {
      const above = inner.getBoundingClientRect().top - outer.getBoundingClientRect().top;
      setMargin(Math.round(above + outer.scrollTop));
    });
    for (const element of inner.parentElement.children) if (element !== inner) observer.observe(element);
    observer.observe(outer);
    return () => observer.disconnect();
  }, [frame, list]);
  return margin;
}
