/** The steps of a run below its answer, each closed until it is looked into. */
import { useCallback, useState } from "react";

import { useText } from "../messages/useText";
import type { RunState } from "../run/state";
import { hasEnded } from "../run/status";
import { StepPanel } from "./step/StepPanel";
import { stepKey } from "./stepKey";
import styles from "./runs.module.css";

export default function DebugPanels({ state }: { state: RunState }) {
  const text = useText();
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const onToggle = useCallback(
    (key: string, isOpen: boolean) =>
      setOpen((before) => {
        if (before.has(key) === isOpen) return before;
        const after = new Set(before);
        if (isOpen) after.add(key);
        else after.delete(key);
        return after;
      }),
    [],
  );
  return (
    <section className={styles.panels} aria-label={text.debugSteps}>
      {state.steps.map((step) => (
        <StepPanel
          key={stepKey(step)}
          runId={state.runId}
          step={step}
          hasEnded={hasEnded(state.status)}
          isOpen={open.has(stepKey(step))}
          onToggle={onToggle}
        />
      ))}
    </section>
  );
}
