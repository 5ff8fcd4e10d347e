/** The steps of a run below its answer, each closed until it is looked into. */
import { useText } from "../messages/useText";
import type { RunState } from "../run/state";
import { StepPanel } from "./StepPanel";
import styles from "./runs.module.css";

export default function DebugPanels({ state }: { state: RunState }) {
  const text = useText();
  return (
    <section className={styles.panels} aria-label={text.debugSteps}>
      {state.steps.map((step) => (
        <StepPanel key={`${String(step.revision)}/${step.stepId}`} step={step} isOpen={false} />
      ))}
    </section>
  );
}
