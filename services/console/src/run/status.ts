/** States of runs and steps. */
import type { Outcome, RunStatus } from "../api/types";

const ENDED: ReadonlySet<RunStatus> = new Set<RunStatus>([
  "RUN_STATUS_SUCCEEDED",
  "RUN_STATUS_PARTIALLY_SUCCEEDED",
  "RUN_STATUS_FAILED",
  "RUN_STATUS_CANCELLED",
  "RUN_STATUS_CLARIFICATION_NEEDED",
]);

/** Whether a run has ended. */
export function hasEnded(status: RunStatus): boolean {
  return ENDED.has(status);
}

/** How an outcome is shown: "good" answers what was asked, "part" lacks something. */
export type OutcomeTone = "good" | "part" | undefined;

const TONES: Record<Outcome, OutcomeTone> = {
  OUTCOME_UNSPECIFIED: undefined,
  OUTCOME_ANSWERED: "good",
  OUTCOME_EMPTY: "good",
  OUTCOME_PREMISE_REFUTED: "good",
  OUTCOME_NOT_IN_SOURCE: "part",
  OUTCOME_PARTLY: "part",
  OUTCOME_DENIED: "part",
  OUTCOME_EXPIRED: "part",
  OUTCOME_SKIPPED: "part",
  OUTCOME_CUT_OFF: "part",
};

/** The tone of an outcome; none for what failed, and for outcomes of a newer gateway. */
export function toneOf(outcome: Outcome | undefined): OutcomeTone {
  return outcome && TONES[outcome];
}

/** The outcome that is worth a word of its own; none where the status says all. */
export function shownOutcome(outcome: Outcome | undefined): Outcome | undefined {
  const isPlain = outcome === "OUTCOME_ANSWERED" || outcome === "OUTCOME_UNSPECIFIED";
  return isPlain || !outcome || !(outcome in TONES) ? undefined : outcome;
}
