/** Names of steps in addresses: a step is known by its plan's revision and its id. */
import type { StepState } from "../run/state";

export function stepKey({ revision, stepId }: Pick<StepState, "revision" | "stepId">): string {
  return `step-${String(revision)}-${stepId}`;
}
