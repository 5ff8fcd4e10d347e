/** Asking: a question becomes a run, which is followed by its id from then on. */
import { useMutation, useQueryClient } from "@tanstack/react-query";

import { api, dataOf } from "../api/client";
import { isTransient } from "../api/errors";
import { agents } from "../api/queries";
import { session } from "../api/session";
import type { AgentRequest, ModelChoice, Run } from "../api/types";
import { preferences, type Preferences } from "../settings/preferences";

export interface Question {
  question: string;
  conversationId: string;
  /** The text was made from one that others wrote, such as a suggested follow-up. */
  tainted?: boolean;
  /** Run whose clarifying questions this answers. */
  continues?: string;
}

/** A question of the conversation that is open. */
export type OnAsk = (question: Omit<Question, "conversationId">) => void;

/** Mutation that stores a question. A repeated attempt finds the same run by its request id. */
export function useAsk() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: async ({ requestId, ...question }: Question & { requestId: string }): Promise<Run> => {
      const set = preferences.read();
      const models = set.model ? (await client.fetchQuery(agents)).models : [];
      return dataOf(api.POST("/v1/runs", { body: requestOf(question, requestId, set, models) }));
    },
    retry: (failures, error) => failures < 3 && isTransient(error),
    onSuccess: (run) =>
      Promise.all([
        client.invalidateQueries({ queryKey: ["runs", run.conversation_id] }),
        client.invalidateQueries({ queryKey: ["conversations"] }),
      ]),
  });
}

/** "Today" is that of the browser; some browsers do not know their zone. */
function zoneContext(): { time_zone?: string } {
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  return zone && zone !== "Etc/Unknown" ? { time_zone: zone } : {};
}

/**
 * The request of a question, shaped by what the user has set. A model that is not among those offered
 * is left out: the server would refuse every question, and the settings no longer show it.
 */
export function requestOf(
  question: Question,
  requestId: string,
  set: Preferences,
  models: readonly ModelChoice[] = [],
): AgentRequest {
  const context = { ...zoneContext(), ...session.read().current?.context };
  return {
    question: question.question,
    request_id: requestId,
    conversation_id: question.conversationId,
    trace: true, // the page of the run shows what each step did
    ...(Object.keys(context).length ? { context: context as Record<string, never> } : {}),
    ...(set.maxRows ? { max_rows: set.maxRows } : {}),
    ...(set.maxColumns ? { max_columns: set.maxColumns } : {}),
    ...(set.timeoutS ? { timeout: `${String(set.timeoutS)}s` } : {}),
    ...(set.backend ? { backend: set.backend } : {}),
    ...(models.some(({ name }) => name === set.model) ? { model: set.model } : {}),
    ...(question.tainted ? { tainted: true } : {}),
    ...(question.continues ? { continues_run_id: question.continues } : {}),
  };
}
