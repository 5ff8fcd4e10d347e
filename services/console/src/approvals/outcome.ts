import type { Approval } from "../api/types";
import type { Messages } from "../messages/en";

/** What became of an approval; with instructions nothing was done: the agent was to propose again. */
export function outcomeOf(approval: Approval, text: Messages): string {
  const isSentBack = approval.status === "APPROVAL_STATUS_APPROVED" && approval.user_instructions !== "";
  return isSentBack ? text.sentBack : text.approvalStates[approval.status];
}
