/** The raw events of a run, as the stream brought them. */
import { useState } from "react";

import type { RunEvent } from "../api/types";
import { useText } from "../messages/useText";
import { Literal } from "../text/Literal";
import { shortened } from "./step/Listing";
import { VirtualList } from "./VirtualList";
import styles from "./runs.module.css";

const COMMON = new Set(["run_id", "sequence", "create_time"]);
const ROW_PX = 34;

export function Events({ events }: { events: RunEvent[] }) {
  const text = useText();
  const [opened, setOpened] = useState<ReadonlySet<string>>(new Set());
  const onToggle = (sequence: string, isOpen: boolean) =>
    setOpened((before) => {
      if (before.has(sequence) === isOpen) return before;
      const next = new Set(before);
      if (isOpen) next.add(sequence);
      else next.delete(sequence);
      return next;
    });
  return (
    <section className={styles.events} aria-label={text.events}>
      <h2>{text.rawEvents}</h2>
      {events.length === 0 && <p className={styles.muted}>{text.noEvents}</p>}
      <VirtualList
        label={text.events}
        keys={events.map((event) => event.sequence)}
        estimatePx={ROW_PX}
        className={styles.plainList}
        render={(index) => {
          const event = events[index];
          return event && <Event event={event} isOpen={opened.has(event.sequence)} onToggle={onToggle} />;
        }}
      />
    </section>
  );
}

interface EventProps {
  event: RunEvent;
  isOpen: boolean;
  onToggle: (sequence: string, isOpen: boolean) => void;
}

function Event({ event, isOpen, onToggle }: EventProps) {
  const kind = Object.keys(event).find((key) => !COMMON.has(key)) ?? "";
  return (
    <details open={isOpen} onToggle={(toggled) => onToggle(event.sequence, toggled.currentTarget.open)}>
      <summary>
        <span className={styles.sequence}>{event.sequence}</span> {kind}{" "}
        <time className={styles.muted}>{event.create_time?.slice(11, 23)}</time>
      </summary>
      {isOpen && (
        <pre tabIndex={0}>
          <Literal text={shortened(JSON.stringify(event[kind as keyof RunEvent], null, 2))} />
        </pre>
      )}
    </details>
  );
}
