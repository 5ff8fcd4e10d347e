/** All that waits for a decision of the user, the soonest to expire first. */
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { useState } from "react";

import { pendingApprovals, recentApprovals } from "../api/queries";
import type { Approval } from "../api/types";
import { useText } from "../messages/useText";
import { useShortcuts } from "../shell/useShortcuts";
import { shownTime } from "../text/format";
import { Literal } from "../text/Literal";
import { Empty, Failure } from "../ui/controls";
import { ApprovalById } from "./ApprovalCard";
import { outcomeOf } from "./outcome";
import styles from "./approvals.module.css";

export function InboxPage() {
  const text = useText();
  const navigate = useNavigate();
  const { approvalId } = useParams({ strict: false });
  const pending = useQuery(pendingApprovals);
  const recent = useQuery(recentApprovals);
  const waiting = (pending.data?.approvals ?? []).toSorted(byExpiry);
  const decided = (recent.data?.approvals ?? []).filter(
    (each) => each.status !== "APPROVAL_STATUS_PENDING",
  );
  const all = [...waiting, ...decided];
  // What was opened stays open when it is decided, with its outcome.
  const [opened, setOpened] = useState<string>();
  if (opened === undefined && waiting[0]) setOpened(waiting[0].approval_id);
  const shown = approvalId ?? opened;
  const go = (steps: number) => {
    const at = all.findIndex((each) => each.approval_id === shown);
    const next = all[Math.min(all.length - 1, Math.max(0, at + steps))];
    if (next) void navigate({ to: "/approvals/$approvalId", params: { approvalId: next.approval_id } });
  };
  useShortcuts({
    j: () => go(1),
    k: () => go(-1),
    // The decision itself is one more key, on the button: nothing is approved by a slip.
    a: () => focusDecision("approve"),
    d: () => focusDecision("deny"),
  });
  return (
    <div className={styles.inbox}>
      <nav className={styles.listPane} aria-label={text.approvals}>
        <h1>{text.approvals}</h1>
        {pending.error && <Failure error={pending.error} onRetry={() => void pending.refetch()} />}
        {waiting.length > 0 && <p className={styles.hint}>{text.inboxKeys}</p>}
        <Items title={text.waiting} approvals={waiting} shown={shown} />
        <Items title={text.decided} approvals={decided} shown={shown} />
      </nav>
      <section className={styles.detail} aria-label={text.approval}>
        {shown ? (
          <ApprovalById key={shown} approvalId={shown} />
        ) : (
          pending.isSuccess && (
            <Empty title={text.noApprovals}>
              <p>{text.noApprovalsHint}</p>
            </Empty>
          )
        )}
      </section>
    </div>
  );
}

interface ItemsProps {
  title: string;
  approvals: Approval[];
  shown: string | undefined;
}

function Items({ title, approvals, shown }: ItemsProps) {
  const text = useText();
  if (approvals.length === 0) return null;
  return (
    <>
      <h2>{title}</h2>
      <ul>
        {approvals.map((each) => (
          <li key={each.approval_id}>
            <Link
              to="/approvals/$approvalId"
              params={{ approvalId: each.approval_id }}
              className={styles.item}
              aria-current={each.approval_id === shown}
            >
              <span>
                <Literal text={each.display?.actions[0]?.title ?? each.task_description} />
              </span>
              <small>
                <Literal text={each.agent_name} />
                {" · "}
                {each.status === "APPROVAL_STATUS_PENDING"
                  ? shownTime(each.create_time)
                  : outcomeOf(each, text)}
              </small>
            </Link>
          </li>
        ))}
      </ul>
    </>
  );
}

function byExpiry(left: Approval, right: Approval): number {
  return Date.parse(left.expire_time ?? "") - Date.parse(right.expire_time ?? "");
}

function focusDecision(name: string): void {
  document.querySelector<HTMLElement>(`[data-decision="${name}"]`)?.focus();
}
