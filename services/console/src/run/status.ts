/** States of runs and steps. */
import type { RunStatus } from "../api/types";

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
