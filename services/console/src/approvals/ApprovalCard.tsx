/**
 * One approval: exactly what would be done, as literal text, and the decision.
 *
 * What is shown is `display`, which the gateway makes from the stored call: nothing in it is Markdown.
 * The card of an answered approval stays, without buttons.
 */
import { useQuery } from "@tanstack/react-query";
import { useId, useState } from "react";

import { ApiError } from "../api/errors";
import { approval as approvalQuery } from "../api/queries";
import type { Approval } from "../api/types";
import { useText } from "../messages/useText";
import { linkTarget } from "../text/links";
import { Literal } from "../text/Literal";
import { shownTime } from "../text/format";
import { Button, Failure, Icon, Notice } from "../ui/controls";
import { Countdown } from "./Countdown";
import { outcomeOf } from "./outcome";
import { useDecision } from "./useDecision";
import styles from "./approvals.module.css";

/** An approval by its id, read anew until it is decided. */
export function ApprovalById({ approvalId }: { approvalId: string }) {
  const text = useText();
  const found = useQuery(approvalQuery(approvalId));
  if (found.data) return <ApprovalCard approval={found.data} />;
  if (found.error) return <Failure error={found.error} onRetry={() => void found.refetch()} />;
  return <p role="status">{text.loading}</p>;
}

export function ApprovalCard({ approval }: { approval: Approval }) {
  const text = useText();
  const titleId = useId();
  const isPending = approval.status === "APPROVAL_STATUS_PENDING";
  const { display } = approval;
  return (
    <article
      className={styles.card}
      data-decided={!isPending}
      data-approval={approval.approval_id}
      aria-labelledby={titleId}
    >
      <h3 className={styles.head} id={titleId}>
        <Icon name="shield" />
        {isPending ? text.approvalNeeded : outcomeOf(approval, text)}
        {isPending && approval.expire_time && <Countdown expireTime={approval.expire_time} />}
        {!isPending && <time>{shownTime(approval.respond_time)}</time>}
      </h3>
      <div className={styles.body}>
        {approval.kind === "APPROVAL_KIND_OUTCOME_UNKNOWN" && (
          <Notice kind="bad">{text.outcomeUnknown}</Notice>
        )}
        <dl className={styles.facts}>
          <dt>{text.agent}</dt>
          <dd>
            <Literal text={approval.agent_name} />
          </dd>
          <dt>{text.task}</dt>
          <dd>
            <Literal text={display?.task.join("\n") || approval.task_description} />
          </dd>
        </dl>
        {(display?.actions ?? []).map((action, index) => (
          <section key={index} className={styles.action} aria-label={text.willDo}>
            <div className={styles.actionHead}>
              <strong>
                <Literal text={action.title} />
              </strong>
              <div className={styles.meta}>
                <code>
                  <Literal text={action.tool} />
                </code>
                {action.notes.map((note) => (
                  <span key={note}>
                    <Literal text={note} />
                  </span>
                ))}
                <span title={approval.actions[index]?.digest}>
                  {text.digest} <code>{shortDigest(approval.actions[index]?.digest)}</code>
                </span>
              </div>
            </div>
            <dl className={styles.arguments} aria-label={text.exactly}>
              {action.arguments.map((argument) => (
                <div key={argument.label} className={styles.argument}>
                  <dt>
                    <Literal text={argument.label} />
                    <small>{shownType(argument.type)}</small>
                  </dt>
                  <dd>
                    <pre>
                      {argument.lines.length > 0 ? (
                        <Literal text={argument.lines.join("\n")} />
                      ) : (
                        <em>{text.emptyValue}</em>
                      )}
                    </pre>
                  </dd>
                </div>
              ))}
            </dl>
          </section>
        ))}
        <Origins approval={approval} />
        {approval.user_instructions && (
          <dl className={styles.facts}>
            <dt>{text.instructions}</dt>
            <dd>
              <Literal text={approval.user_instructions} />
            </dd>
          </dl>
        )}
        {isPending && <Decision approval={approval} />}
      </div>
    </article>
  );
}

function shortDigest(digest: string | undefined): string {
  return (digest ?? "").replace("sha256:", "").slice(0, 12);
}

/** The type without the digest of a long value, which the title of the action has for all of it. */
function shownType(type: string): string {
  return type.replace(/, sha256:[0-9a-f]{64}$/, "");
}

/** Which content of others led to the proposal. */
function Origins({ approval }: { approval: Approval }) {
  const text = useText();
  if (approval.origins.length === 0) return null;
  return (
    <section className={styles.origins}>
      <strong>{text.origins}</strong>
      <ul>
        {approval.origins.map((origin, index) => (
          <li key={index}>
            {text.originKinds[origin.kind]}
            {origin.step_id && (
              <>
                {" "}
                <Literal text={`${origin.step_id} (${origin.agent_name})`} />
              </>
            )}
            {origin.sources.map((source, at) => (
              <span key={at}>
                {", "}
                <Literal text={source.title} />
                {source.uri && linkTarget(source.uri) && (
                  <>
                    {" "}
                    (<Literal text={source.uri} />)
                  </>
                )}
              </span>
            ))}
          </li>
        ))}
      </ul>
    </section>
  );
}

function Decision({ approval }: { approval: Approval }) {
  const text = useText();
  const [isInstructing, setInstructing] = useState(false);
  const [instructions, setInstructions] = useState("");
  const decision = useDecision(approval);
  const { error } = decision;
  const wasDecided = error instanceof ApiError && error.status === 409;
  return (
    <div className={styles.instructions}>
      {wasDecided && <Notice kind="warn">{text.decidedElsewhere}</Notice>}
      {error && !wasDecided && <Failure error={error} />}
      {isInstructing && (
        <label className={styles.instructions}>
          <span>{text.instructions}</span>
          <textarea
            value={instructions}
            maxLength={8192}
            autoFocus
            onChange={(event) => setInstructions(event.target.value)}
          />
          <small>{text.instructionsHint}</small>
        </label>
      )}
      <div className={styles.actions}>
        {isInstructing ? (
          <>
            <Button
              kind="primary"
              disabled={decision.isPending || !instructions.trim()}
              onClick={() => decision.mutate({ isApproved: true, instructions: instructions.trim() })}
            >
              {text.instruct}
            </Button>
            <Button onClick={() => setInstructing(false)}>{text.cancel}</Button>
          </>
        ) : (
          <>
            <Button
              kind="primary"
              disabled={decision.isPending}
              data-decision="approve"
              onClick={() => decision.mutate({ isApproved: true })}
            >
              <Icon name="check" /> {text.approve}
            </Button>
            <Button
              kind="danger"
              disabled={decision.isPending}
              data-decision="deny"
              onClick={() => decision.mutate({ isApproved: false })}
            >
              <Icon name="cross" /> {text.deny}
            </Button>
            <Button kind="quiet" disabled={decision.isPending} onClick={() => setInstructing(true)}>
              {text.addInstructions}
            </Button>
          </>
        )}
      </div>
    </div>
  );
}
