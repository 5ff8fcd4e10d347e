/** The raw events of a run, as the stream brought them. */
import { useState } from "react";

import type { RunEvent } from "../api/types";
import { useText } from "../messages/useText";
import { Literal } from "../text/Literal";
import styles from "./runs.module.css";

const COMMON = new Set(["run_id", "sequence", "create_time"]);
/** Characters of one event that are shown; a longer one is cut, with a word on its size. */
const MOST = 20_000;

export function Events({ events }: { events: RunEvent[] }) {
  const text = useText();
  return (
    <section className={styles.events} aria-label={text.events}>
      <h2>{text.rawEvents}</h2>
      {events.length === 0 && <p className={styles.muted}>{text.noEvents}</p>}
      {events.map((event) => (
        <Event key={event.sequence} event={event} />
      ))}
    </section>
  );
}

function Event({ event }: { event: RunEvent }) {
  const [isOpen, setOpen] = useState(false);
  const kind = Object.keys(event).find((key) => !COMMON.has(key)) ?? "";
  return (
    <details onToggle={(toggled) => setOpen(toggled.currentTarget.open)}>
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

function shortened(text: string): string {
  return text.length > MOST ? `${text.slice(0, MOST)}\n… (${String(text.length)} characters)` : text;
}
