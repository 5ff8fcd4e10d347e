/** Deciding an approval. A decision that came too late is refused by the server with 409. */
import { useMutation, useQueryClient } from "@tanstack/react-query";

import { api, dataOf } from "../api/client";
import type { Approval } from "../api/types";

export interface Decision {
  isApproved: boolean;
  instructions?: string;
}

export function useDecision(approval: Approval) {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ isApproved, instructions = "" }: Decision) =>
      dataOf(
        api.POST("/v1/approvals/{approval_id}:respond", {
          params: { path: { approval_id: approval.approval_id } },
          body: {
            decision: isApproved ? "APPROVAL_DECISION_APPROVE" : "APPROVAL_DECISION_DENY",
            instructions,
          },
        }),
      ),
    onSettled: () =>
      Promise.all([
        client.invalidateQueries({ queryKey: ["approvals"] }),
        client.invalidateQueries({ queryKey: ["approval", approval.approval_id] }),
      ]),
  });
}
