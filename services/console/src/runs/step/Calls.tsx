/** What a step called and found: tools, passages, and its trace. */
import type { TraceEvent } from "../../api/types";
import { useText } from "../../messages/useText";
import type { StepState } from "../../run/state";
import { between, shownSeconds } from "../../text/format";
import { Literal } from "../../text/Literal";
import styles from "../runs.module.css";
import { shortened, shownValue } from "./Listing";
import { hits, toolCalls } from "./sections";

export function ToolCalls({ step }: { step: StepState }) {
  const text = useText();
  const calls = toolCalls(step);
  if (calls.length === 0) return null;
  return (
    <section aria-label={text.runs.toolCalls}>
      <h3>{text.runs.toolCalls}</h3>
      <ol className={styles.calls}>
        {calls.map((call, index) => (
          <ToolCall key={index} call={call} />
        ))}
      </ol>
    </section>
  );
}

function ToolCall({ call }: { call: TraceEvent }) {
  const { arguments: given, duration_ms: took, failed, ...rest } = call.data as Record<string, unknown>;
  return (
    <li>
      <strong>
        <Literal text={call.message} />
      </strong>
      {typeof took === "number" && <span className={styles.muted}> {shownSeconds(took / 1000)}</span>}
      {typeof failed === "string" && (
        <span className={styles.failed}>
          {" "}
          <Literal text={failed} />
        </span>
      )}
      {[given, rest].map(
        (each, index) =>
          typeof each === "object" &&
          each !== null &&
          Object.keys(each).length > 0 && (
            <pre key={index} tabIndex={0}>
              <Literal text={shortened(shownValue(each))} />
            </pre>
          ),
      )}
    </li>
  );
}

export function Hits({ data }: { data: Record<string, unknown> }) {
  const text = useText();
  const found = hits(data);
  if (found.length === 0) return null;
  return (
    <details className={styles.progress}>
      <summary>
        {text.runs.retrieved} ({found.length})
      </summary>
      <ol>
        {found.map((hit, index) => (
          <li key={index}>
            <strong>
              <Literal text={hit.title} />
            </strong>{" "}
            <span className={styles.muted}>
              <Literal text={hit.place} />
              {hit.score !== undefined && ` · ${hit.score.toFixed(3)}`}
            </span>
            <blockquote>
              <Literal text={shortened(hit.text)} />
            </blockquote>
          </li>
        ))}
      </ol>
    </details>
  );
}

interface ProgressProps {
  title: string;
  events: TraceEvent[];
  startTime: string | undefined;
}

export function Progress({ title, events, startTime }: ProgressProps) {
  if (events.length === 0) return null;
  return (
    <details className={styles.progress}>
      <summary>
        {title} ({events.length})
      </summary>
      <ol>
        {events.map((event, index) => (
          <li key={index}>
            <span className={styles.muted}>
              +{shownSeconds(between(startTime, event.create_time) ?? 0)}{" "}
              {event.type.replace("TRACE_EVENT_TYPE_", "").toLowerCase()}
            </span>{" "}
            <Literal text={event.message} />
            {Object.keys(event.data).length > 0 && (
              <code>
                {" "}
                <Literal text={shortened(JSON.stringify(event.data))} />
              </code>
            )}
          </li>
        ))}
      </ol>
    </details>
  );
}
