/** One question with what became of it: steps, approvals, answer, table, sources, what to do next. */
import { useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { lazy, memo, Suspense, useState, type ReactNode } from "react";

import { api, dataOf } from "../api/client";
import { storedRun } from "../api/queries";
import type { Run } from "../api/types";
import { ApprovalCard } from "../approvals/ApprovalCard";
import { Answer, FurtherCharts } from "../charts/Answer";
import { RunFiles } from "../files/RunFiles";
import { useText } from "../messages/useText";
import { endedRun, type RunState } from "../run/state";
import { hasEnded } from "../run/status";
import { Steps } from "../run/Steps";
import { useRun } from "../run/useRun";
import { usePreferences } from "../settings/usePreferences";
import { Literal } from "../text/Literal";
import { Button, buttonClass, Failure, Icon, Notice } from "../ui/controls";
import { useCopy } from "../ui/useCopy";
import { ClarificationForm } from "./ClarificationForm";
import { Feedback } from "./Feedback";
import { ResultTable } from "./ResultTable";
import { Sources } from "./Sources";
import type { OnAsk } from "./ask";
import styles from "./chat.module.css";

/** What each step did, for those who switched debugging on. */
const DebugPanels = lazy(() => import("../runs/DebugPanels"));

export interface TurnProps {
  run: Run;
  /** The last turn of the conversation: follow-ups and questions back are offered there alone. */
  isLast: boolean;
  /** Its place among all turns, from 1, where not all are drawn. */
  position?: number;
  size?: number;
  onAsk: OnAsk;
  onEdit: (question: string) => void;
}

/** A turn: a run that had ended when the page was opened is read, any other one followed. */
export const Turn = memo(function Turn(props: TurnProps) {
  const [isStored] = useState(() => hasEnded(props.run.status));
  return isStored ? <StoredTurn {...props} /> : <LiveTurn {...props} />;
});

function StoredTurn(props: TurnProps) {
  const text = useText();
  const found = useQuery(storedRun(props.run.run_id));
  const failure = found.error && (
    <Failure error={found.error} onRetry={() => void found.refetch()} />
  );
  const state = endedRun(found.data ?? props.run);
  return (
    <TurnView {...props} state={state} isConnected>
      {failure}
      {found.isPending && <p role="status">{text.loading}</p>}
    </TurnView>
  );
}

function LiveTurn(props: TurnProps) {
  const { state, isConnected, failure } = useRun(props.run.run_id, props.run.question);
  return (
    <TurnView {...props} state={state} isConnected={isConnected}>
      {failure && <Failure error={failure} />}
    </TurnView>
  );
}

interface ViewProps extends TurnProps {
  state: RunState;
  isConnected: boolean;
  children: ReactNode;
}

function TurnView({ state, isConnected, children, isLast, position, size, onAsk, onEdit }: ViewProps) {
  const text = useText();
  const { response } = state;
  const { debug } = usePreferences();
  const isOver = hasEnded(state.status);
  const table = response?.data;
  return (
    <article
      className={styles.turn}
      data-run={state.runId}
      data-status={state.status}
      aria-posinset={position}
      aria-setsize={size}
    >
      <h2 className={styles.question}>
        <span className="visually-hidden">{text.you}: </span>
        <Literal text={state.question} />
      </h2>
      <div className={styles.reply}>
        <Steps state={state} />
        {!isConnected && !isOver && <Notice role="status">{text.reconnecting}</Notice>}
        {children}
        {state.approvals.map((approval) => (
          <ApprovalCard key={approval.approval_id} approval={approval} />
        ))}
        <Answer state={state} />
        {table && table.columns.length > 0 && <ResultTable table={table} name={`bos-${state.runId}`} />}
        <FurtherCharts state={state} />
        {response && <RunFiles runId={state.runId} results={response.agent_results} />}
        {response && <Sources sources={response.sources} />}
        {isLast && response?.clarification && (
          <ClarificationForm clarification={response.clarification} state={state} onAsk={onAsk} />
        )}
        {debug && (
          <Suspense fallback={<p role="status">{text.loading}</p>}>
            <DebugPanels state={state} />
          </Suspense>
        )}
        <Actions state={state} onAsk={onAsk} onEdit={onEdit} />
        {isLast && isOver && response && response.followups.length > 0 && (
          <section className={styles.followUps} aria-label={text.followUps}>
            {response.followups.map((followUp) => (
              <Button
                key={followUp}
                onClick={() => onAsk({ question: followUp, tainted: response.tainted })}
              >
                <Literal text={followUp} />
              </Button>
            ))}
          </section>
        )}
      </div>
    </article>
  );
}

type ActionsProps = Pick<ViewProps, "state" | "onAsk" | "onEdit">;

function Actions({ state, onAsk, onEdit }: ActionsProps) {
  const text = useText();
  const [isCopied, copy] = useCopy();
  const cancel = useMutation({
    mutationFn: () =>
      dataOf(
        api.POST("/v1/runs/{run_id}:cancel", { params: { path: { run_id: state.runId } }, body: {} }),
      ),
  });
  if (!hasEnded(state.status)) {
    return (
      <div className={styles.actions}>
        {cancel.error && <Failure error={cancel.error} />}
        <Button disabled={cancel.isPending || state.cancelRequested} onClick={() => cancel.mutate()}>
          <Icon name="stop" /> {state.cancelRequested ? text.stopping : text.stop}
        </Button>
        <RunLink runId={state.runId} />
      </div>
    );
  }
  return (
    <div className={styles.actions}>
      <Feedback runId={state.runId} />
      <Button kind="quiet" onClick={() => copy(state.answer.text)}>
        <Icon name="copy" /> {isCopied ? text.copied : text.copyAnswer}
      </Button>
      <Button kind="quiet" onClick={() => onAsk({ question: state.question })}>
        {text.askAgain}
      </Button>
      <Button kind="quiet" onClick={() => onEdit(state.question)}>
        {text.editAgain}
      </Button>
      <RunLink runId={state.runId} />
    </div>
  );
}

function RunLink({ runId }: { runId: string }) {
  const text = useText();
  return (
    <Link to="/runs/$runId" params={{ runId }} className={buttonClass("quiet")}>
      {text.openRun}
    </Link>
  );
}
