/** Recent runs to compare one with: those of its question first, then those of its conversation. */
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";

import { recentRuns, storedRun } from "../../api/queries";
import type { Run } from "../../api/types";
import { useText } from "../../messages/useText";
import { shownTime } from "../../text/format";
import { Literal } from "../../text/Literal";
import { Failure, Notice } from "../../ui/controls";
import styles from "./compare.module.css";

/** Runs of each group that are listed. */
const MOST = 20;

export function ChooseRunPage() {
  const text = useText();
  const { runId } = useParams({ from: "/shell/runs/$runId/compare" });
  const run = useQuery({ ...storedRun(runId), staleTime: 0 });
  const recent = useQuery(recentRuns(""));
  const conversationId = run.data?.conversation_id ?? "";
  const related = useQuery({ ...recentRuns(conversationId), enabled: conversationId !== "" });
  const failure = run.error ?? recent.error ?? related.error;
  const isLoading = run.isPending || recent.isPending || (conversationId !== "" && related.isPending);
  const groups = run.data
    ? grouped(run.data, [...(related.data?.runs ?? []), ...(recent.data?.runs ?? [])])
    : undefined;
  const titles = [text.runs.sameQuestion, text.runs.sameConversation, text.runs.otherRuns];
  return (
    <div className={styles.page}>
      <div className={styles.narrow}>
        <header className={styles.head}>
          <h1>{text.runs.compareRuns}</h1>
          {run.data && (
            <p>
              {text.runs.thisRun}:{" "}
              <Link to="/runs/$runId" params={{ runId }}>
                <Literal text={run.data.question} />
              </Link>{" "}
              <small>{shownTime(run.data.create_time)}</small>
            </p>
          )}
        </header>
        {failure && <Failure error={failure} onRetry={() => void run.refetch()} />}
        {isLoading && !failure && <p role="status">{text.loading}</p>}
        {groups && !isLoading && groups.every((group) => group.length === 0) && (
          <Notice>{text.runs.noOther}</Notice>
        )}
        {groups?.map(
          (group, index) =>
            group.length > 0 && (
              <section key={titles[index]} aria-label={titles[index]}>
                <h2>{titles[index]}</h2>
                <ul className={styles.choices}>
                  {group.slice(0, MOST).map((other) => (
                    <li key={other.run_id}>
                      <Link
                        to="/runs/$runId/compare/$otherId"
                        params={{ runId, otherId: other.run_id }}
                      >
                        <Literal text={other.question} />
                      </Link>
                      <small>
                        {shownTime(other.create_time)} · {text.runStates[other.status]}
                      </small>
                    </li>
                  ))}
                </ul>
              </section>
            ),
        )}
      </div>
    </div>
  );
}

/** Other runs, each once: of the same question, of the same conversation, and the rest. */
function grouped(run: Run, others: Run[]): [Run[], Run[], Run[]] {
  const groups: [Run[], Run[], Run[]] = [[], [], []];
  const seen = new Set([run.run_id]);
  for (const other of others) {
    if (seen.has(other.run_id)) continue;
    seen.add(other.run_id);
    const isSame = other.question.trim() === run.question.trim();
    const isRelated = run.conversation_id !== "" && other.conversation_id === run.conversation_id;
    groups[isSame ? 0 : isRelated ? 1 : 2].push(other);
  }
  return groups;
}
