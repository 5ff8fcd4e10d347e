/** Steps on a time axis: when each began, how long it took, what it waited for. */
import { useText } from "../messages/useText";
import type { RunState, StepState } from "../run/state";
import { StepIcon } from "../run/Steps";
import { between, shownSeconds } from "../text/format";
import { Literal } from "../text/Literal";
import { stepKey } from "./stepKey";
import { VirtualList } from "./VirtualList";
import styles from "./runs.module.css";

/** A bar is never narrower, in percent of the axis. */
const NARROWEST = 0.8;
const ROW_PX = 30;

interface Props {
  state: RunState;
  onChoose: (key: string) => void;
}

export function Timeline({ state, onChoose }: Props) {
  const text = useText();
  const begin = state.createTime;
  const end = state.events.at(-1)?.create_time;
  const whole = between(begin, end);
  if (!whole || state.steps.length === 0) return null;
  return (
    <section className={styles.timeline} aria-label={text.timeline}>
      <h2>{text.timeline}</h2>
      <VirtualList
        label={text.timeline}
        keys={state.steps.map(stepKey)}
        estimatePx={ROW_PX}
        render={(index) => {
          const step = state.steps[index];
          return step && <Row step={step} begin={begin} end={end} whole={whole} onChoose={onChoose} />;
        }}
      />
    </section>
  );
}

interface RowProps {
  step: StepState;
  begin: string | undefined;
  end: string | undefined;
  whole: number;
  onChoose: Props["onChoose"];
}

function Row({ step, begin, end, whole, onChoose }: RowProps) {
  const text = useText();
  const offset = between(begin, step.startTime);
  const length = between(step.startTime, step.endTime ?? end) ?? 0;
  const key = stepKey(step);
  return (
    <div className={styles.row}>
      <a
        href={`#${key}`}
        className={styles.label}
        onClick={(event) => {
          event.preventDefault();
          onChoose(key);
        }}
      >
        <StepIcon status={step.status} />
        <Literal text={step.stepId} />
      </a>
      <span className={styles.track}>
        {offset !== undefined && (
          <span
            className={styles.barMark}
            data-status={step.status}
            style={{
              left: `${String((100 * offset) / whole)}%`,
              width: `${String(Math.max(NARROWEST, (100 * length) / whole))}%`,
            }}
          />
        )}
      </span>
      <span className={styles.muted}>
        {offset === undefined ? text.stepStates[step.status] : shownSeconds(length)}
      </span>
    </div>
  );
}
