/** What one step did: task, queries by dialect, program, table, sources, trace, error. */
import { useId, useState } from "react";

import { ResultTable } from "../chat/ResultTable";
import { Sources } from "../chat/Sources";
import { useText } from "../messages/useText";
import { StepIcon } from "../run/Steps";
import type { StepState } from "../run/state";
import { between, seconds, shownSeconds } from "../text/format";
import { Literal } from "../text/Literal";
import { Button, Notice } from "../ui/controls";
import { useCopy } from "../ui/useCopy";
import styles from "./runs.module.css";

const DIALECTS = ["sql", "sql_postgres", "sql_server", "sql_sqlite"] as const;
type Dialect = (typeof DIALECTS)[number];

export function StepPanel({ step, isOpen = true }: { step: StepState; isOpen?: boolean }) {
  const text = useText();
  const { result } = step;
  const data = result?.data ?? {};
  const took = between(step.startTime, step.endTime) ?? seconds(result?.latency);
  const usage = result?.usage;
  return (
    <details className={styles.panel} id={`step-${String(step.revision)}-${step.stepId}`} open={isOpen}>
      <summary>
        <StepIcon status={step.status} />
        <strong>
          <Literal text={step.stepId} />
        </strong>
        <code>
          <Literal text={step.agent} />
        </code>
        <span className={styles.muted}>
          {text.stepStates[step.status]}
          {step.revision > 0 && ` · ${text.revision(step.revision)}`}
          {step.attempt > 1 && ` · ${text.attempt(step.attempt)}`}
          {took !== undefined && ` · ${shownSeconds(took)}`}
          {usage && usage.model_calls > 0 &&
            ` · ${text.modelCalls}: ${String(usage.model_calls)}`}
          {result?.tainted && ` · ${text.rests}`}
        </span>
      </summary>
      <div className={styles.panelBody}>
        <p>
          <Literal text={result?.task_description || step.task} />
        </p>
        {result?.error && (
          <Notice kind="bad">
            <Literal text={`${result.error.type}: ${result.error.message}`} />
          </Notice>
        )}
        <Queries data={data} />
        {typeof data["code"] === "string" && <Listing title={text.program} content={data["code"]} />}
        {result?.answer && (
          <p>
            <Literal text={result.answer} />
          </p>
        )}
        {result?.table && result.table.columns.length > 0 && (
          <ResultTable table={result.table} name={`bos-${step.stepId}`} />
        )}
        {result && <Sources sources={result.sources} />}
        {result && result.performed_actions.length > 0 && (
          <Listing title={text.performed} content={JSON.stringify(result.performed_actions, null, 2)} />
        )}
        {step.progress.length > 0 && <Progress step={step} />}
      </div>
    </details>
  );
}

function Queries({ data }: { data: Record<string, unknown> }) {
  const text = useText();
  const known = DIALECTS.filter((name) => typeof data[name] === "string" && data[name] !== "");
  const [chosen, choose] = useState<Dialect>("sql");
  const groupId = useId();
  if (known.length === 0) return null;
  const shown = known.includes(chosen) ? chosen : (known[0] ?? "sql");
  const tables = Array.isArray(data["used_tables"]) ? data["used_tables"].map(String) : [];
  return (
    <div>
      <div className={styles.tabs} role="group" aria-label={text.sql} id={groupId}>
        {known.map((name) => (
          <Button key={name} kind="quiet" aria-pressed={name === shown} onClick={() => choose(name)}>
            {text.dialects[name]}
          </Button>
        ))}
      </div>
      <Listing title={text.sql} content={String(data[shown])} />
      {tables.length > 0 && (
        <p className={styles.muted}>
          {text.usedTables}: <Literal text={tables.join(", ")} />
        </p>
      )}
    </div>
  );
}

export function Listing({ title, content }: { title: string; content: string }) {
  const text = useText();
  const [isCopied, copy] = useCopy();
  return (
    <figure className={styles.listing}>
      <figcaption>
        {title}
        <Button kind="quiet" onClick={() => copy(content)}>
          {isCopied ? text.copied : text.copy}
        </Button>
      </figcaption>
      <pre tabIndex={0}>
        <Literal text={content} />
      </pre>
    </figure>
  );
}

function Progress({ step }: { step: StepState }) {
  const text = useText();
  return (
    <details className={styles.progress}>
      <summary>
        {text.progress} ({step.progress.length})
      </summary>
      <ol>
        {step.progress.map((event, index) => (
          <li key={index}>
            <span className={styles.muted}>
              +{shownSeconds(between(step.startTime, event.create_time) ?? 0)}{" "}
              {event.type.replace("TRACE_EVENT_TYPE_", "").toLowerCase()}
            </span>{" "}
            <Literal text={event.message} />
            {Object.keys(event.data).length > 0 && (
              <code>
                {" "}
                <Literal text={JSON.stringify(event.data)} />
              </code>
            )}
          </li>
        ))}
      </ol>
    </details>
  );
}
