/** Asking: a question becomes a run, which is followed by its id from then on. */
import { useMutation, useQueryClient } from "@tanstack/react-query";

import { api, dataOf } from "../api/client";
import { isTransient } from "../api/errors";
import { session } from "../api/session";
import type { AgentRequest, Run } from "../api/types";
import { preferences, type Preferences } from "../settings/preferences";

export interface Question {
  question: string;
  conversationId: string;
  /** The text was made from one that others wrote, such as a suggested follow-up. */
  tainted?: boolean;
  /** Run whose clarifying questions this answers. */
  continues?: string;
}

/** Mutation that stores a question. A repeated attempt finds the same run by its request id. */
export function useAsk() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ requestId, ...question }: Question & { requestId: string }): Promise<Run> =>
      dataOf(api.POST("/v1/runs", { body: requestOf(question, requestId) })),
    retry: (failures, error) => failures < 3 && isTransient(error),
    onSuccess: (run) =>
      Promise.all([
        client.invalidateQueries({ queryKey: ["runs", run.conversation_id] }),
        client.invalidateQueries({ queryKey: ["conversations"] }),
      ]),
  });
}

/** The request of a question, shaped by what the user has set. */
export function requestOf(question: Question, requestId: string, set: Preferences = preferences.read()): AgentRequest {
  const context = session.read().current?.context;
  return {
    question: question.question,
    request_id: requestId,
    conversation_id: question.conversationId,
    trace: true, // the page of the run shows what each step did
    ...(context ? { context } : {}),
    ...(set.maxRows ? { max_rows: set.maxRows } : {}),
    ...(set.maxColumns ? { max_columns: set.maxColumns } : {}),
    ...(set.timeoutS ? { timeout: `${String(set.timeoutS)}s` } : {}),
    ...(set.backend ? { backend: set.backend } : {}),
    ...(question.tainted ? { tainted: true } : {}),
    ...(question.continues ? { continues_run_id: question.continues } : {}),
  };
}
