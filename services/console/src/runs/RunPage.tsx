/** A run for engineers: overview, steps on a time axis, what each step did, and its raw events. */
import { Link, useParams } from "@tanstack/react-router";

import { ApprovalCard } from "../approvals/ApprovalCard";
import { useText } from "../messages/useText";
import type { RunState } from "../run/state";
import { hasEnded, shownOutcome, toneOf } from "../run/status";
import { useRun } from "../run/useRun";
import { useSession } from "../shell/useSession";
import { seconds, shownNumber, shownSeconds, shownTime } from "../text/format";
import { linkTarget } from "../text/links";
import { Literal } from "../text/Literal";
import { Button, buttonClass, Failure, Notice } from "../ui/controls";
import { FactList, type Fact } from "../ui/FactList";
import { useCopy } from "../ui/useCopy";
import { Events } from "./Events";
import { Graph } from "./graph/Graph";
import { StepList } from "./StepList";
import { Progress } from "./step/Calls";
import { Timeline } from "./Timeline";
import { UsageTable } from "./UsageTable";
import { shownCost } from "./usage";
import { useChosenStep } from "./useChosenStep";
import styles from "./runs.module.css";

export function RunPage() {
  const { runId } = useParams({ from: "/shell/runs/$runId" });
  return <RunView key={runId} runId={runId} />;
}

function RunView({ runId }: { runId: string }) {
  const text = useText();
  const { state, isConnected, failure } = useRun(runId);
  const [isCopied, copy] = useCopy();
  const outcome = shownOutcome(state.response?.outcome);
  const [choice, choose] = useChosenStep(state.steps.length > 0);
  return (
    <div className={styles.page}>
      <div className={styles.column}>
        <header className={styles.head}>
          <h1>
            <Literal text={state.question || runId} />
          </h1>
          <span
            className={styles.state}
            data-status={state.status}
            data-tone={toneOf(state.response?.outcome)}
          >
            {outcome ? text.outcomes[outcome] : text.runStates[state.status]}
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
            <Link to="/runs/$runId/compare" params={{ runId }} className={buttonClass()}>
              {text.runs.compare}
            </Link>
            <Button onClick={() => copy(location.href)}>{isCopied ? text.copied : text.copyAddress}</Button>
          </div>
        </header>
        {failure && <Failure error={failure} />}
        {!isConnected && !hasEnded(state.status) && <Notice role="status">{text.reconnecting}</Notice>}
        <Overview state={state} />
        <Planning state={state} />
        {state.steps.length > 0 && (
          <section aria-label={text.runs.graph}>
            <h2>{text.runs.graph}</h2>
            <Graph state={state} chosen={choice.key} onChoose={choose} />
          </section>
        )}
        <Timeline state={state} onChoose={choose} />
        {state.approvals.map((approval) => (
          <ApprovalCard key={approval.approval_id} approval={approval} />
        ))}
        <StepList
          runId={state.runId}
          steps={state.steps}
          hasEnded={hasEnded(state.status)}
          choice={choice}
        />
        <UsageTable state={state} />
        <Events events={state.events} />
      </div>
    </div>
  );
}

/** Why these agents, and how each plan came about. */
function Planning({ state }: { state: RunState }) {
  const text = useText();
  const rationale = state.plans.at(-1)?.decision?.rationale;
  return (
    <>
      {rationale && (
        <p className={styles.muted}>
          {text.rationale}: <Literal text={rationale} />
        </p>
      )}
      <Progress
        title={text.runs.decisions}
        events={state.plans.flatMap((plan) => plan.trace)}
        startTime={state.createTime}
      />
    </>
  );
}

/** The id of the run's trace, as a link if it is known where traces are kept. */
function Trace({ traceId }: { traceId: string }) {
  const text = useText();
  const pattern = useSession().current?.trace_url;
  const target = linkTarget(pattern?.replaceAll("{trace_id}", encodeURIComponent(traceId)));
  if (!target) return <Literal text={traceId} />;
  return (
    <a href={target.href} target="_blank" rel="noopener noreferrer">
      {text.runs.openTrace} (<Literal text={target.host} />)
    </a>
  );
}

function Overview({ state }: { state: RunState }) {
  const text = useText();
  const metadata = state.response?.metadata;
  const took = seconds(metadata?.latency);
  const usage = metadata?.usage;
  const facts: Fact[] = [
    [text.run, state.runId],
    [text.asked, shownTime(state.createTime)],
    [text.took, took === undefined ? undefined : shownSeconds(took)],
    [text.runs.chosenModel, state.model],
    [text.modelCalls, usage && `${String(usage.model_calls)} (${usage.models.join(", ")})`],
    [
      text.modelTokens,
      usage && text.modelTokensOf(shownNumber(usage.input_tokens), shownNumber(usage.output_tokens)),
    ],
    [text.runs.cost, usage && (shownCost(BigInt(usage.cost_micros)) ?? text.runs.costUnknown)],
    [text.errorOf, state.response?.error?.message],
  ];
  return (
    <FactList facts={facts} className={styles.facts}>
      {metadata?.trace_id && (
        <div>
          <dt>{text.traceId}</dt>
          <dd>
            <Trace traceId={metadata.trace_id} />
          </dd>
        </div>
      )}
    </FactList>
  );
}
