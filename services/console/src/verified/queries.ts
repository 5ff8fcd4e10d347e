/** Verified queries: the caller's own and those of the caller's groups. */
import { infiniteQueryOptions, queryOptions, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";

import { api, dataOf } from "../api/client";
import { agents } from "../api/queries";
import type { components } from "../api/schema";
import { useRoles } from "../operate/useRoles";

export type VerifiedQuery = components["schemas"]["VerifiedQuery"];

const KEY = ["verified"];
const PAGE = 50;
/** Most of one run: for each of its steps, one for its author and one for each group. */
const MOST_OF_RUN = 200;

/** All, newest first. */
export const verifiedQueries = infiniteQueryOptions({
  queryKey: [...KEY, "all"],
  queryFn: ({ pageParam }) =>
    dataOf(api.GET("/v1/verified-queries", { params: { query: { page_size: PAGE, page_token: pageParam } } })),
  initialPageParam: "",
  getNextPageParam: (last) => last.next_page_token || undefined,
});

/** Those that were made from one run. */
export const verifiedOfRun = (runId: string) =>
  queryOptions({
    queryKey: [...KEY, "run", runId],
    queryFn: async () =>
      (
        await dataOf(
          api.GET("/v1/verified-queries", { params: { query: { page_size: MOST_OF_RUN, run_id: runId } } }),
        )
      ).verified_queries,
  });

export interface Verifying {
  runId: string;
  stepId: string;
  /** The query that is right; the one that ran unless a person has written another. */
  sql: string;
  /** Group to share it with; empty: for the user alone. */
  group: string;
}

export function useVerify() {
  const client = useQueryClient();
  return useMutation({
    mutationFn: ({ runId, stepId, sql, group }: Verifying) =>
      dataOf(
        api.POST("/v1/verified-queries", {
          body: { run_id: runId, step_id: stepId, group, corrected_sql: sql },
        }),
      ),
    onSuccess: () => client.invalidateQueries({ queryKey: KEY }),
  });
}

/** Takes a verification back. */
export function useUnverify(): (queryId: string) => Promise<void> {
  const client = useQueryClient();
  return async (queryId) => {
    await dataOf(api.DELETE("/v1/verified-queries/{query_id}", { params: { path: { query_id: queryId } } }));
    await client.invalidateQueries({ queryKey: KEY });
  };
}

/** Whether the user reviews for groups, and for which. The gateway decides again. */
export function useReviewing(): { isReviewer: boolean; groups: readonly string[] } {
  const isReviewer = useRoles()?.includes("approver") ?? false;
  const { data } = useQuery({ ...agents, enabled: isReviewer });
  return { isReviewer, groups: isReviewer ? (data?.groups ?? []) : [] };
}
