/** What one step did: task, inputs, queries, calls, result, what it used and why it failed. */
import { memo } from "react";

import { Charts } from "../../charts/Charts";
import { ResultTable } from "../../chat/ResultTable";
import { Sources } from "../../chat/Sources";
import { RunFiles } from "../../files/RunFiles";
import { useText } from "../../messages/useText";
import { StepIcon } from "../../run/Steps";
import type { StepState } from "../../run/state";
import { shownOutcome, toneOf } from "../../run/status";
import { between, seconds, shownSeconds } from "../../text/format";
import { Literal } from "../../text/Literal";
import { Notice } from "../../ui/controls";
import { stepKey } from "../stepKey";
import { countsOf, grouped, shownCost } from "../usage";
import styles from "../runs.module.css";
import { Hits, Progress, ToolCalls } from "./Calls";
import { Listing } from "./Listing";
import { Queries } from "./Queries";
import { otherFields } from "./sections";

interface Props {
  runId: string;
  step: StepState;
  /** Whether the run has ended. */
  hasEnded: boolean;
  isOpen: boolean;
  onToggle: (key: string, isOpen: boolean) => void;
}

export const StepPanel = memo(function StepPanel({ runId, step, hasEnded, isOpen, onToggle }: Props) {
  const text = useText();
  const { result } = step;
  const outcome = shownOutcome(result?.outcome);
  const took = between(step.startTime, step.endTime) ?? seconds(result?.latency);
  const key = stepKey(step);
  const facts = [
    outcome ? text.outcomes[outcome] : text.stepStates[step.status],
    step.revision > 0 && text.revision(step.revision),
    step.attempt > 1 && text.attempt(step.attempt),
    took !== undefined && shownSeconds(took),
    result && result.confidence !== 0 && text.runs.confidence(Number(result.confidence)),
    result?.tainted && text.rests,
  ];
  return (
    <details
      className={styles.panel}
      id={key}
      open={isOpen}
      onToggle={({ currentTarget: { open } }) => {
        if (open !== isOpen) onToggle(key, open); // else it follows what was drawn
      }}
    >
      <summary>
        <StepIcon status={step.status} outcome={result?.outcome} />
        <strong>
          <Literal text={step.stepId} />
        </strong>
        <code>
          <Literal text={step.agent} />
        </code>
        <span className={styles.muted}>{facts.filter(Boolean).join(" · ")}</span>
      </summary>
      {isOpen && <Body runId={runId} step={step} hasEnded={hasEnded} />}
    </details>
  );
});

function Body({ runId, step, hasEnded }: Pick<Props, "runId" | "step" | "hasEnded">) {
  const text = useText();
  const { result } = step;
  const data: Record<string, unknown> = result?.data ?? {};
  const others = otherFields(data);
  return (
    <div className={styles.panelBody}>
      <Task step={step} />
      {result?.error && (
        <Notice kind={toneOf(result.outcome) === "part" ? "warn" : "bad"}>
          <Literal text={`${result.error.type}: ${result.error.message}`} />
        </Notice>
      )}
      {result?.error && Object.keys(result.error.details).length > 0 && (
        <Listing title={text.runs.errorDetails} content={JSON.stringify(result.error.details, null, 2)} />
      )}
      <Queries runId={runId} step={step} hasEnded={hasEnded} />
      {typeof data["code"] === "string" && <Listing title={text.program} content={data["code"]} />}
      {result?.answer && (
        <p>
          <Literal text={result.answer} />
        </p>
      )}
      {result?.table && result.table.columns.length > 0 && (
        <ResultTable table={result.table} name={`bos-${step.stepId}`} />
      )}
      {result && <Charts runId={runId} charts={result.charts} />}
      {result && <Sources sources={result.sources} />}
      <Hits data={data} />
      <Points title={text.runs.assumptions} points={result?.assumptions} />
      <Points title={text.runs.caveats} points={result?.caveats} />
      <ToolCalls step={step} />
      {result && result.performed_actions.length > 0 && (
        <Listing title={text.performed} content={JSON.stringify(result.performed_actions, null, 2)} />
      )}
      {result && <RunFiles runId={runId} results={[result]} />}
      {result?.partial_data && Object.keys(result.partial_data).length > 0 && (
        <Listing title={text.runs.partial} content={JSON.stringify(result.partial_data, null, 2)} />
      )}
      {Object.keys(others).length > 0 && (
        <details className={styles.progress}>
          <summary>{text.runs.data}</summary>
          <Listing title={text.runs.data} content={JSON.stringify(others, null, 2)} />
        </details>
      )}
      <Used step={step} />
      <Progress title={text.progress} events={step.progress} startTime={step.startTime} />
    </div>
  );
}

/** What was asked, beside what was planned if that differs, and with which inputs. */
function Task({ step }: { step: StepState }) {
  const text = useText();
  const effective = step.result?.task_description || step.task;
  return (
    <>
      <div>
        <h3>{text.runs.effectiveTask}</h3>
        <p>
          <Literal text={effective} />
        </p>
        {step.result?.task_overridden && <p className={styles.muted}>{text.runs.overridden}</p>}
      </div>
      {step.plannedTask && step.plannedTask !== effective && (
        <div>
          <h3>{text.runs.plannedTask}</h3>
          <p className={styles.muted}>
            <Literal text={step.plannedTask} />
          </p>
        </div>
      )}
      {step.tool && (
        <p className={styles.muted}>
          {text.runs.tool}: <Literal text={step.tool} />
        </p>
      )}
      {Object.keys(step.input).length > 0 && (
        <Listing title={text.runs.inputs} content={JSON.stringify(step.input, null, 2)} />
      )}
    </>
  );
}

function Points({ title, points = [] }: { title: string; points?: string[] | undefined }) {
  if (points.length === 0) return null;
  return (
    <section aria-label={title}>
      <h3>{title}</h3>
      <ul className={styles.points}>
        {points.map((point, index) => (
          <li key={index}>
            <Literal text={point} />
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Model calls, tokens and cost of the step. */
function Used({ step }: { step: StepState }) {
  const text = useText();
  if (!step.result?.usage) return null;
  const counts = countsOf(step.result.usage);
  if (counts.calls === 0 && counts.otherCalls === 0 && counts.abandoned === 0) return null;
  const facts = [
    counts.calls > 0 && `${text.modelCalls}: ${grouped(counts.calls)}`,
    counts.calls > 0 && text.modelTokensOf(grouped(counts.sent), grouped(counts.received)),
    counts.cached > 0n && `${text.runs.cached}: ${grouped(counts.cached)}`,
    counts.calls > 0 && `${text.runs.cost}: ${shownCost(counts.costMicros) ?? text.runs.costUnknown}`,
    counts.abandoned > 0 && `${text.runs.abandoned}: ${grouped(counts.abandoned)}`,
    counts.otherCalls > 0 && `${text.runs.otherCalls}: ${grouped(counts.otherCalls)}`,
    counts.models.length > 0 && counts.models.join(", "),
  ];
  return (
    <p className={styles.muted}>
      <Literal text={facts.filter(Boolean).join(" · ")} />
    </p>
  );
}
