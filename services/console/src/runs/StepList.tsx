/** Panels of all steps: open while they are few, found by words and drawn as they come into view when many. */
import { useState } from "react";

import { useText } from "../messages/useText";
import type { StepState } from "../run/state";
import { Button, Field } from "../ui/controls";
import { StepPanel } from "./step/StepPanel";
import { matches } from "./step/sections";
import { stepKey } from "./stepKey";
import { LONG, VirtualList } from "./VirtualList";
import type { Choice } from "./useChosenStep";
import styles from "./runs.module.css";

/** Up to so many steps begin open. */
const FEW = 12;
const CLOSED_PX = 52;

interface Props {
  runId: string;
  steps: StepState[];
  /** Whether the run has ended. */
  hasEnded: boolean;
  choice: Choice;
}

export function StepList({ runId, steps, hasEnded, choice }: Props) {
  const text = useText();
  const [query, setQuery] = useState("");
  const [toggled, setToggled] = useState<ReadonlyMap<string, boolean>>(new Map());
  const [isWhole, setWhole] = useState(false);
  const isMany = steps.length > FEW;
  const found = isMany ? steps.filter((step) => matches(step, query)) : steps;
  const keys = found.map(stepKey);
  const isOpen = (key: string) => toggled.get(key) ?? (!isMany || key === choice.key);
  const onToggle = (key: string, open: boolean) =>
    setToggled((before) => (before.get(key) === open ? before : new Map(before).set(key, open)));
  // A step that is chosen opens, though it was closed before.
  const chosen = `${String(choice.count)} ${choice.key ?? ""}`;
  const [opened, setOpened] = useState(chosen);
  if (opened !== chosen) {
    setOpened(chosen);
    if (choice.key !== undefined) setToggled(new Map(toggled).set(choice.key, true));
    if (choice.key !== undefined && !keys.includes(choice.key)) setQuery("");
  }
  const index = choice.key === undefined ? -1 : keys.indexOf(choice.key);
  const all = (open: boolean) => setToggled(new Map(steps.map((step) => [stepKey(step), open])));
  return (
    <section className={styles.panels} aria-label={text.steps}>
      <div className={styles.listHead}>
        <h2>{text.steps}</h2>
        {isMany && (steps.length <= LONG || isWhole) && (
          <>
            <Button kind="quiet" onClick={() => all(true)}>
              {text.runs.openAll}
            </Button>
            <Button kind="quiet" onClick={() => all(false)}>
              {text.runs.closeAll}
            </Button>
          </>
        )}
      </div>
      {isMany && (
        <Field
          label={text.runs.findStep}
          type="search"
          value={query}
          hint={text.runs.findStepHint}
          onChange={(event) => setQuery(event.target.value)}
        />
      )}
      {found.length === 0 && steps.length > 0 && <p role="status">{text.runs.noStepFound}</p>}
      <VirtualList
        label={text.steps}
        keys={keys}
        estimatePx={CLOSED_PX}
        className={styles.panelList}
        onWhole={setWhole}
        index={index}
        revealed={`${chosen} ${String(index >= 0)}`}
        render={(at) => {
          const step = found[at];
          if (!step) return undefined;
          const key = stepKey(step);
          return <StepPanel runId={runId} step={step} hasEnded={hasEnded} isOpen={isOpen(key)} onToggle={onToggle} />;
        }}
      />
    </section>
  );
}
