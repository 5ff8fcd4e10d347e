/** Steps of a run as a graph: a plan for each revision, states and times as they happen. */
import { useId, useMemo, useRef, useState, type KeyboardEvent, type RefObject } from "react";

import { useText } from "../../messages/useText";
import type { RunState, StepState } from "../../run/state";
import { StepIcon } from "../../run/Steps";
import { between, seconds, shownSeconds } from "../../text/format";
import { Literal } from "../../text/Literal";
import { Button } from "../../ui/controls";
import { stepKey } from "../stepKey";
import { layoutOf, neighbour, NODE_HEIGHT, NODE_WIDTH, pathOf, type Direction, type Layout } from "./layout";
import styles from "./graph.module.css";

const ZOOMS = [0.5, 0.7, 0.85, 1, 1.25];
const NORMAL = 3;
const ARROWS: Partial<Record<string, Direction>> = {
  ArrowLeft: "left",
  ArrowRight: "right",
  ArrowUp: "up",
  ArrowDown: "down",
};

interface Props {
  state: RunState;
  chosen: string | undefined;
  onChoose: (key: string) => void;
}

export function Graph({ state, chosen, onChoose }: Props) {
  const text = useText();
  const revisions = [...new Set(state.steps.map((step) => step.revision))];
  const [zoom, setZoom] = useState(NORMAL);
  const ended = state.steps.filter((step) => step.result).length;
  return (
    <>
      <div className={styles.tools}>
        <span className={styles.status} role="status">
          {text.runs.stepsEnded(ended, state.steps.length)}
        </span>
        <Button kind="quiet" disabled={zoom === 0} onClick={() => setZoom(zoom - 1)}>
          {text.runs.zoomOut}
        </Button>
        <Button kind="quiet" disabled={zoom === ZOOMS.length - 1} onClick={() => setZoom(zoom + 1)}>
          {text.runs.zoomIn}
        </Button>
      </div>
      {revisions.map((revision) => (
        <Plan
          key={revision}
          revision={revision}
          steps={state.steps.filter((step) => step.revision === revision)}
          isLatest={revision === revisions.at(-1)}
          isOnly={revisions.length === 1}
          scale={ZOOMS[zoom] ?? 1}
          chosen={chosen}
          onChoose={onChoose}
        />
      ))}
    </>
  );
}

interface PlanProps extends Omit<Props, "state"> {
  revision: number;
  steps: StepState[];
  isLatest: boolean;
  isOnly: boolean;
  scale: number;
}

/** One plan. Earlier ones are folded up, so that the one in force is in view. */
function Plan({ revision, steps, isLatest, isOnly, ...rest }: PlanProps) {
  const text = useText();
  const [wish, setOpen] = useState<boolean>();
  const isOpen = wish ?? isLatest;
  const drawing = <Drawing steps={steps} {...rest} />;
  if (isOnly) return drawing;
  return (
    <details
      className={styles.plan}
      open={isOpen}
      onToggle={({ currentTarget: { open } }) => {
        if (open !== isOpen) setOpen(open); // else it follows what was drawn: no user asked for it
      }}
    >
      <summary>
        {text.runs.planOf(revision)} <span>{text.runs.stepCount(steps.length)}</span>
      </summary>
      {isOpen && drawing}
    </details>
  );
}

type DrawingProps = Pick<PlanProps, "steps" | "scale" | "chosen" | "onChoose">;

function Drawing({ steps, scale, chosen, onChoose }: DrawingProps) {
  const text = useText();
  const hintId = useId();
  const markerId = useId();
  const { frame, onKeyDown, current, setCurrent, layout } = usePlacedSteps(steps);
  const byId = new Map(steps.map((step) => [step.stepId, step]));
  return (
    <div className={styles.frame}>
      <p id={hintId} className="visually-hidden">
        {text.runs.graphHint}
      </p>
      <div
        className={styles.canvas}
        style={{ width: layout.width * scale, height: layout.height * scale }}
      >
        <div
          className={styles.scaled}
          style={{ width: layout.width, height: layout.height, transform: `scale(${String(scale)})` }}
        >
          <svg width={layout.width} height={layout.height} aria-hidden="true" className={styles.edges}>
            <defs>
              <marker
                id={markerId}
                viewBox="0 0 8 8"
                refX="7"
                refY="4"
                markerWidth="7"
                markerHeight="7"
                orient="auto"
              >
                <path d="M0,0.500L7.500,4L0,7.500z" />
              </marker>
            </defs>
            {layout.edges.map(({ from, to, points }) => (
              <path
                key={`${from} ${to}`}
                d={pathOf(points)}
                markerEnd={`url(#${markerId})`}
                data-done={byId.get(from)?.status === "succeeded" || undefined}
              />
            ))}
          </svg>
          <ol ref={frame} className={styles.nodes} aria-label={text.runs.graph} aria-describedby={hintId}>
            {layout.nodes.map(({ step, x, y }) => (
              <li key={step.stepId} style={{ left: x, top: y, width: NODE_WIDTH, height: NODE_HEIGHT }}>
                <Node
                  step={byId.get(step.stepId) ?? step}
                  isCurrent={step.stepId === current}
                  isChosen={stepKey(step) === chosen}
                  onFocus={() => setCurrent(step.stepId)}
                  onKeyDown={(event) => onKeyDown(event, step.stepId)}
                  onChoose={onChoose}
                />
              </li>
            ))}
          </ol>
        </div>
      </div>
    </div>
  );
}

interface Placing {
  layout: Layout;
  frame: RefObject<HTMLOListElement | null>;
  /** The step that Tab comes to; arrow keys move it. */
  current: string | undefined;
  setCurrent: (stepId: string) => void;
  onKeyDown: (event: KeyboardEvent, stepId: string) => void;
}

function usePlacedSteps(steps: StepState[]): Placing {
  const frame = useRef<HTMLOListElement>(null);
  const [focused, setCurrent] = useState<string>();
  // The places depend on the plan alone: they stay while states and times change.
  const shape = steps.map((step) => `${step.stepId}<${step.dependsOn.join(",")}`).join(";");
  // eslint-disable-next-line react-hooks/exhaustive-deps -- see above
  const layout = useMemo(() => layoutOf(steps), [shape]);
  const order = layout.nodes.map((node) => node.step.stepId);
  const onKeyDown = (event: KeyboardEvent, stepId: string) => {
    const direction = ARROWS[event.key];
    let next: string | undefined;
    if (direction) next = neighbour(layout, stepId, direction);
    else if (event.key === "Home") next = order[0];
    else if (event.key === "End") next = order.at(-1);
    if (next === undefined) return;
    event.preventDefault();
    const links = frame.current?.querySelectorAll<HTMLElement>("a") ?? [];
    links[order.indexOf(next)]?.focus();
  };
  const current = focused !== undefined && order.includes(focused) ? focused : order[0];
  return { layout, frame, current, setCurrent, onKeyDown };
}

interface NodeProps {
  step: StepState;
  isCurrent: boolean;
  isChosen: boolean;
  onFocus: () => void;
  onKeyDown: (event: KeyboardEvent) => void;
  onChoose: (key: string) => void;
}

function Node({ step, isCurrent, isChosen, onFocus, onKeyDown, onChoose }: NodeProps) {
  const text = useText();
  const took = between(step.startTime, step.endTime) ?? seconds(step.result?.latency);
  const key = stepKey(step);
  return (
    <a
      href={`#${key}`}
      className={styles.node}
      data-status={step.status}
      aria-current={isChosen ? "true" : undefined}
      tabIndex={isCurrent ? 0 : -1}
      onFocus={onFocus}
      onKeyDown={onKeyDown}
      onClick={(event) => {
        event.preventDefault();
        onChoose(key);
      }}
      title={step.task}
    >
      <span className={styles.nodeHead}>
        <StepIcon status={step.status} />
        <strong>
          <Literal text={step.stepId} />
        </strong>
        {took !== undefined && <span className={styles.took}>{shownSeconds(took)}</span>}
      </span>
      <span className={styles.nodeFoot}>
        <span className={styles.agent}>
          <Literal text={step.agent} />
        </span>{" "}
        <span className={styles.stateWord}>
          {text.stepStates[step.status]}
          {step.attempt > 1 && ` · ${text.attempt(step.attempt)}`}
        </span>
        {step.dependsOn.length > 0 && (
          <span className="visually-hidden">
            , <Literal text={text.runs.after(step.dependsOn.join(", "))} />
          </span>
        )}
      </span>
    </a>
  );
}
