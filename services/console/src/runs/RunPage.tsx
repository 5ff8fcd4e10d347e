/** A run for engineers: overview, steps on a time axis, what each step did, and its raw events. */
import { Link, useParams } from "@tanstack/react-router";

import { ApprovalCard } from "../approvals/ApprovalCard";
import { useText } from "../messages/useText";
import type { RunState } from "../run/state";
import { hasEnded } from "../run/status";
import { useRun } from "../run/useRun";
import { seconds, shownNumber, shownSeconds, shownTime } from "../text/format";
import { Literal } from "../text/Literal";
import { Button, buttonClass, Failure, Notice } from "../ui/controls";
import { useCopy } from "../ui/useCopy";
import { Events } from "./Events";
import { StepPanel } from "./StepPanel";
import { Timeline } from "./Timeline";
import styles from "./runs.module.css";

export function RunPage() {
  const { runId } = useParams({ from: "/shell/runs/$runId" });
  return <RunView key={runId} runId={runId} />;
}

function RunView({ runId }: { runId: string }) {
  const text = useText();
  const { state, isConnected, failure } = useRun(runId);
  const [isCopied, copy] = useCopy();
  return (
    <div className={styles.page}>
      <div className={styles.column}>
        <header className={styles.head}>
          <h1>
            <Literal text={state.question || runId} />
          </h1>
          <span className={styles.state} data-status={state.status}>
            {text.runStates[state.status]}
          </span>
          <div className={styles.buttons}>
            {state.conversationId && (
              <Link
                to="/c/$conversationId"
                params={{ conversationId: state.conversationId }}
                className={buttonClass()}
              >
                {text.toConversation}
              </Link>
            )}
            <Button onClick={() => copy(location.href)}>{isCopied ? text.copied : text.copyAddress}</Button>
          </div>
        </header>
        {failure && <Failure error={failure} />}
        {!isConnected && !hasEnded(state.status) && <Notice role="status">{text.reconnecting}</Notice>}
        <Overview state={state} />
        {state.plans.at(-1)?.decision?.rationale && (
          <p className={styles.muted}>
            {text.rationale}: <Literal text={state.plans.at(-1)?.decision?.rationale ?? ""} />
          </p>
        )}
        <Timeline state={state} />
        {state.approvals.map((approval) => (
          <ApprovalCard key={approval.approval_id} approval={approval} />
        ))}
        <section className={styles.panels} aria-label={text.steps}>
          <h2>{text.steps}</h2>
          {state.steps.map((step) => (
            <StepPanel key={`${String(step.revision)}/${step.stepId}`} step={step} />
          ))}
        </section>
        <Events events={state.events} />
      </div>
    </div>
  );
}

function Overview({ state }: { state: RunState }) {
  const text = useText();
  const metadata = state.response?.metadata;
  const took = seconds(metadata?.latency);
  const usage = metadata?.usage;
  const facts: [string, string | undefined][] = [
    [text.run, state.runId],
    [text.asked, shownTime(state.createTime)],
    [text.took, took === undefined ? undefined : shownSeconds(took)],
    [text.modelCalls, usage && `${String(usage.model_calls)} (${usage.models.join(", ")})`],
    [
      text.modelTokens,
      usage && text.modelTokensOf(shownNumber(usage.input_tokens), shownNumber(usage.output_tokens)),
    ],
    [text.traceId, metadata?.trace_id],
    [text.errorOf, state.response?.error?.message],
  ];
  return (
    <dl className={styles.facts}>
      {facts
        .filter((fact): fact is [string, string] => Boolean(fact[1]))
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <Literal text={value} />
            </dd>
          </div>
        ))}
    </dl>
  );
}
