/** Steps on a time axis: when each began, how long it took, what it waited for. */
import { useText } from "../messages/useText";
import type { RunState } from "../run/state";
import { StepIcon } from "../run/Steps";
import { between, shownSeconds } from "../text/format";
import { Literal } from "../text/Literal";
import styles from "./runs.module.css";

/** A bar is never narrower, in percent of the axis. */
const NARROWEST = 0.8;

export function Timeline({ state }: { state: RunState }) {
  const text = useText();
  const begin = state.createTime;
  const end = state.events.at(-1)?.create_time;
  const whole = between(begin, end);
  if (!whole || state.steps.length === 0) return null;
  return (
    <section className={styles.timeline} aria-label={text.timeline}>
      <h2>{text.timeline}</h2>
      <ol>
        {state.steps.map((step) => {
          const offset = between(begin, step.startTime);
          const length = between(step.startTime, step.endTime ?? end) ?? 0;
          return (
            <li key={`${String(step.revision)}/${step.stepId}`}>
              <a href={`#step-${String(step.revision)}-${step.stepId}`} className={styles.label}>
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
            </li>
          );
        })}
      </ol>
    </section>
  );
}
