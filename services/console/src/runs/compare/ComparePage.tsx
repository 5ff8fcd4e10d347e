/** Two runs side by side: what they were, used and answered, and each step with what differs marked. */
import { Link, useParams } from "@tanstack/react-router";
import { useState } from "react";

import { useText } from "../../messages/useText";
import type { RunState, StepState } from "../../run/state";
import { StepIcon } from "../../run/Steps";
import { hasEnded } from "../../run/status";
import { useRun, type LiveRun } from "../../run/useRun";
import { between, seconds, shownSeconds, shownTime } from "../../text/format";
import { Literal } from "../../text/Literal";
import { Button, buttonClass, Failure, Notice } from "../../ui/controls";
import { grouped, shownCost } from "../usage";
import { Difference } from "./Difference";
import { aspectsOf, differing, inForce, pairsOf, type Pair } from "./pairs";
import styles from "./compare.module.css";

export function ComparePage() {
  const { runId, otherId } = useParams({ from: "/shell/runs/$runId/compare/$otherId" });
  return <Comparison key={`${runId} ${otherId}`} runId={runId} otherId={otherId} />;
}

function Comparison({ runId, otherId }: { runId: string; otherId: string }) {
  const text = useText();
  const left = useRun(runId);
  const right = useRun(otherId);
  const [onlyDifferences, setOnlyDifferences] = useState(false);
  return (
    <div className={styles.page}>
      <div className={styles.wide}>
        <header className={styles.head}>
          <h1>{text.runs.compareRuns}</h1>
          <div className={styles.buttons}>
            <Link
              to="/runs/$runId/compare/$otherId"
              params={{ runId: otherId, otherId: runId }}
              className={buttonClass()}
            >
              {text.runs.swap}
            </Link>
            <Link to="/runs/$runId/compare" params={{ runId }} className={buttonClass()}>
              {text.runs.chooseAnother}
            </Link>
            <Button aria-pressed={onlyDifferences} onClick={() => setOnlyDifferences(!onlyDifferences)}>
              {text.runs.onlyDifferences}
            </Button>
          </div>
        </header>
        <Problems runs={[left, right]} />
        <div className={onlyDifferences ? styles.onlyDifferences : undefined}>
          <Facts left={left.state} right={right.state} />
          <Steps left={left.state} right={right.state} />
          <Difference
            title={text.answer}
            left={left.state.answer.text}
            right={right.state.answer.text}
          />
        </div>
      </div>
    </div>
  );
}

function Problems({ runs }: { runs: LiveRun[] }) {
  const text = useText();
  const failures = runs.flatMap(({ failure }) => (failure ? [failure] : []));
  const isLost = runs.some((run) => !run.isConnected && !hasEnded(run.state.status));
  return (
    <>
      {failures.map((failure, index) => (
        <Failure key={index} error={failure} />
      ))}
      {isLost && <Notice role="status">{text.reconnecting}</Notice>}
    </>
  );
}

interface Sides {
  left: RunState;
  right: RunState;
}

interface Fact {
  name: string;
  values: [string, string];
  /** What lies between two numbers, such as "+120". */
  between?: string;
  /** Times and moments differ always: they are shown, and not marked. */
  isNoise?: boolean;
}

function Facts({ left, right }: Sides) {
  const text = useText();
  const facts = factsOf(left, right, text);
  return (
    <div className={styles.scroll} tabIndex={0} role="region" aria-label={text.overview}>
      <table className={styles.facts}>
        <thead>
          <tr>
            <th scope="col">
              <span className="visually-hidden">{text.runs.part}</span>
            </th>
            <th scope="col">{text.runs.left}</th>
            <th scope="col">{text.runs.right}</th>
            <th scope="col">{text.runs.difference}</th>
          </tr>
        </thead>
        <tbody>
          <tr>
            <th scope="row">{text.run}</th>
            {[left, right].map((run, side) => (
              <td key={side}>
                <Link to="/runs/$runId" params={{ runId: run.runId }}>
                  … {run.runId.slice(-8)}
                </Link>
              </td>
            ))}
            <td />
          </tr>
          {facts.map(({ name, values, between: gap, isNoise = false }) => {
            const differs = values[0] !== values[1];
            return (
              <tr key={name} data-differs={differs && !isNoise}>
                <th scope="row">{name}</th>
                {values.map((value, side) => (
                  <td key={side}>
                    <Literal text={value || "–"} />
                  </td>
                ))}
                <td>
                  {differs && !isNoise && <span className={styles.mark}>{text.runs.differs}</span>} {gap}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

function factsOf(left: RunState, right: RunState, text: ReturnType<typeof useText>): Fact[] {
  const both = (of: (run: RunState) => string): [string, string] => [of(left), of(right)];
  const usage = (run: RunState) => run.response?.metadata?.usage;
  const took = (run: RunState) => seconds(run.response?.metadata?.latency);
  const sums: [string, (run: RunState) => bigint | undefined][] = [
    [text.modelCalls, (run) => known(usage(run)?.model_calls)],
    [text.runs.sent, (run) => known(usage(run)?.input_tokens)],
    [text.runs.cached, (run) => known(usage(run)?.cached_input_tokens)],
    [text.runs.received, (run) => known(usage(run)?.output_tokens)],
    [text.runs.otherCalls, (run) => known(usage(run)?.api_calls)],
  ];
  const [leftTook, rightTook] = [took(left), took(right)];
  const plan = (run: RunState) => inForce(run).map((step) => `${step.stepId} (${step.agent})`).join(" → ");
  return [
    { name: text.question, values: both((run) => run.question) },
    { name: text.runs.state, values: both((run) => text.runStates[run.status]) },
    { name: text.asked, values: both((run) => shownTime(run.createTime)), isNoise: true },
    {
      name: text.runs.duration,
      values: both((run) => (took(run) === undefined ? "" : shownSeconds(took(run) ?? 0))),
      isNoise: true,
      ...(leftTook !== undefined && rightTook !== undefined
        ? { between: `${rightTook < leftTook ? "−" : "+"}${shownSeconds(Math.abs(rightTook - leftTook))}` }
        : {}),
    },
    { name: text.runs.chosenModel, values: both((run) => run.model) },
    { name: text.runs.plan, values: both(plan) },
    { name: text.runs.revisions, values: both((run) => String(Math.max(0, run.plans.length - 1))) },
    ...sums.map(([name, of]): Fact => {
      const [one, other] = [of(left), of(right)];
      const gap = one !== undefined && other !== undefined ? other - one : 0n;
      return {
        name,
        values: [one === undefined ? "" : grouped(one), other === undefined ? "" : grouped(other)],
        ...(gap === 0n ? {} : { between: `${gap > 0n ? "+" : "−"}${grouped(gap > 0n ? gap : -gap)}` }),
      };
    }),
    {
      name: text.runs.cost,
      values: both((run) => {
        const cost = usage(run)?.cost_micros;
        return cost === undefined ? "" : (shownCost(BigInt(cost)) ?? text.runs.costUnknown);
      }),
    },
    { name: text.runs.models, values: both((run) => usage(run)?.models.join(", ") ?? "") },
    {
      name: text.runs.row,
      values: both((run) => (run.response?.data ? grouped(BigInt(run.response.data.row_count)) : "")),
    },
  ];
}

function known(count: string | number | undefined): bigint | undefined {
  return count === undefined ? undefined : BigInt(count);
}

function Steps({ left, right }: Sides) {
  const text = useText();
  const pairs = pairsOf(inForce(left), inForce(right));
  return (
    <section aria-label={text.steps}>
      <h2>{text.steps}</h2>
      <ol className={styles.pairs}>
        {pairs.map((pair, index) => (
          <li key={index} data-differs={!pair.left || !pair.right || differing(pair).length > 0}>
            <PairView pair={pair} />
          </li>
        ))}
      </ol>
    </section>
  );
}

function PairView({ pair }: { pair: Pair }) {
  const text = useText();
  const found = differing(pair);
  const isAlone = !pair.left || !pair.right;
  return (
    <details className={styles.pair} open={isAlone || found.length > 0}>
      <summary>
        {[pair.left, pair.right].map((step, side) => (
          <StepHead key={side} step={step} />
        ))}
        <span className={found.length > 0 || isAlone ? styles.mark : styles.same}>
          {found.length > 0 || isAlone ? text.runs.differs : text.runs.sameInBoth}
        </span>
      </summary>
      <PairBody pair={pair} />
    </details>
  );
}

function StepHead({ step }: { step: StepState | undefined }) {
  const text = useText();
  if (!step) return <span className={styles.none}>{text.runs.notHere}</span>;
  const took = between(step.startTime, step.endTime) ?? seconds(step.result?.latency);
  const calls = step.result?.usage;
  const tokens = calls && BigInt(calls.input_tokens) + BigInt(calls.output_tokens);
  const facts = [
    text.stepStates[step.status],
    took !== undefined && shownSeconds(took),
    tokens !== undefined && tokens > 0n && `${grouped(tokens)} ${text.modelTokens}`,
    calls && shownCost(BigInt(calls.cost_micros)),
  ];
  return (
    <span className={styles.stepHead}>
      <StepIcon status={step.status} />
      <strong>
        <Literal text={step.stepId} />
      </strong>
      <code>
        <Literal text={step.agent} />
      </code>
      <small>{facts.filter(Boolean).join(" · ")}</small>
    </span>
  );
}

function PairBody({ pair }: { pair: Pair }) {
  const text = useText();
  const [one, other] = [pair.left, pair.right].map((step) => step && aspectsOf(step));
  const shown = [
    ["agent", text.agent, false],
    ["task", text.runs.effectiveTask, false],
    ["dependsOn", text.starts, false],
    ["sql", text.sql, true],
    ["program", text.program, true],
    ["answer", text.output, false],
    ["table", text.result, true],
    ["error", text.errorOf, false],
  ] as const;
  return (
    <div className={styles.pairBody}>
      {shown.map(([aspect, title, isCode]) => (
        <Difference
          key={aspect}
          title={title}
          left={one?.[aspect] ?? ""}
          right={other?.[aspect] ?? ""}
          isCode={isCode}
        />
      ))}
    </div>
  );
}
