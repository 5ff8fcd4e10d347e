/** The plan of a run as it happens: a chip for each step, one line when all is done. */
import { useState } from "react";

import type { Outcome } from "../api/types";
import { useText } from "../messages/useText";
import { between, shownSeconds } from "../text/format";
import { Literal } from "../text/Literal";
import { Icon } from "../ui/controls";
import type { RunState, StepState, StepStatus } from "./state";
import { hasEnded, shownOutcome, toneOf } from "./status";
import styles from "./steps.module.css";

const ICONS: Record<StepStatus, Parameters<typeof Icon>[0]["name"]> = {
  waiting: "clock",
  running: "clock",
  approval: "shield",
  succeeded: "check",
  failed: "cross",
  skipped: "skip",
};

export function StepIcon({ status, outcome }: { status: StepStatus; outcome?: Outcome | undefined }) {
  return (
    <span className={styles.icon} data-status={status} data-tone={toneOf(outcome)}>
      <Icon name={ICONS[status]} />
    </span>
  );
}

/** Steps of a run. While it lives they are open; then one line, open again if one failed. */
export function Steps({ state }: { state: RunState }) {
  const text = useText();
  const isOver = hasEnded(state.status);
  const hasFailed = state.steps.some((step) => step.status === "failed");
  const [chosen, setChosen] = useState<boolean>();
  if (state.steps.length === 0) return isOver ? null : <Working word={text.planning} />;
  const isOpen = chosen ?? (!isOver || hasFailed);
  return (
    <section className={styles.steps} aria-label={text.steps}>
      <button
        type="button"
        className={styles.summary}
        aria-expanded={isOpen}
        onClick={() => setChosen(!isOpen)}
      >
        <Icon name={isOpen ? "down" : "right"} />
        {isOver ? <Done state={state} /> : <Working word={currentWord(state, text)} />}
      </button>
      {isOpen && (
        <ol className={styles.chips}>
          {state.steps.map((step) => (
            <Chip key={`${String(step.revision)}/${step.stepId}`} step={step} />
          ))}
        </ol>
      )}
    </section>
  );
}

function Done({ state }: { state: RunState }) {
  const text = useText();
  const taken = state.response?.metadata?.latency;
  const seconds = taken === undefined ? undefined : Number(taken.replace("s", ""));
  return <>{text.stepsDone(state.steps.length, seconds === undefined ? "" : shownSeconds(seconds))}</>;
}

function currentWord(state: RunState, text: ReturnType<typeof useText>): string {
  if (state.cancelRequested) return text.stopping;
  if (state.isRevising) return text.revising;
  if (state.status === "RUN_STATUS_WAITING_FOR_APPROVAL") return text.approvalNeeded;
  if (state.status === "RUN_STATUS_COMPOSING") return text.writing;
  return text.working;
}

function Working({ word }: { word: string }) {
  return (
    <span className={styles.working}>
      <span className={styles.pulse} aria-hidden="true" /> {word}
    </span>
  );
}

function Chip({ step }: { step: StepState }) {
  const text = useText();
  const time = between(step.startTime, step.endTime);
  const last = step.status === "running" ? step.progress.at(-1)?.message : undefined;
  const error = step.result?.error;
  const outcome = shownOutcome(step.result?.outcome);
  return (
    <li className={styles.chip} data-status={step.status}>
      <StepIcon status={step.status} outcome={step.result?.outcome} />
      <span className={styles.agent}>
        <Literal text={step.agent} />
      </span>
      <span className={styles.task}>
        <Literal text={step.task} />
        {step.dependsOn.length > 0 && step.status === "waiting" && (
          <small>
            {" "}
            {text.starts} <Literal text={step.dependsOn.join(", ")} />
          </small>
        )}
        {last && (
          <small>
            {" "}
            <Literal text={last} />
          </small>
        )}
        {outcome && <small> {text.outcomes[outcome]}</small>}
        {error && (
          <small className={styles.error} data-tone={toneOf(step.result?.outcome)}>
            {" "}
            <Literal text={error.message} />
          </small>
        )}
      </span>
      <span className={styles.time}>
        <span className="visually-hidden">{text.stepStates[step.status]}</span>
        {step.attempt > 1 && ` ${text.attempt(step.attempt)} `}
        {time !== undefined && shownSeconds(time)}
      </span>
    </li>
  );
}
