/** What the pages read of REST, each under one key. */
import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";

import { api, dataOf } from "./client";

const PAGE = 50;
/** Time between two looks at what waits for a decision, while the page is visible. */
const APPROVALS_MS = 2000;

export const me = queryOptions({
  queryKey: ["me"],
  queryFn: () => dataOf(api.GET("/v1/users/me")),
  retry: false, // without identity there are no accounts
});

/** What the caller may use: agents with their cards, roles, groups, tables, models. */
export const agents = queryOptions({
  queryKey: ["agents"],
  queryFn: () => dataOf(api.GET("/v1/agents")),
});

export const conversations = (query: string) =>
  infiniteQueryOptions({
    queryKey: ["conversations", query],
    queryFn: ({ pageParam }) =>
      dataOf(
        api.GET("/v1/conversations", {
          params: { query: { page_size: PAGE, page_token: pageParam, ...(query ? { query } : {}) } },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (last) => last.next_page_token || undefined,
  });

/** Runs of a conversation, newest first. */
export const conversationRuns = (conversationId: string) =>
  infiniteQueryOptions({
    queryKey: ["runs", conversationId],
    queryFn: ({ pageParam }) =>
      dataOf(
        api.GET("/v1/runs", {
          params: {
            query: { conversation_id: conversationId, page_size: 20, page_token: pageParam },
          },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (last) => last.next_page_token || undefined,
  });

export const storedRun = (runId: string) =>
  queryOptions({
    queryKey: ["run", runId],
    queryFn: () =>
      dataOf(api.GET("/v1/runs/{run_id}", { params: { path: { run_id: runId } } })),
    staleTime: Infinity, // a run that has ended does not change
  });

/** The newest runs of the user, or of a conversation if one is named. */
export const recentRuns = (conversationId: string) =>
  queryOptions({
    queryKey: ["runs", conversationId, "recent"],
    queryFn: () =>
      dataOf(
        api.GET("/v1/runs", {
          params: {
            query: { page_size: 100, ...(conversationId ? { conversation_id: conversationId } : {}) },
          },
        }),
      ),
  });

export const pendingApprovals = queryOptions({
  queryKey: ["approvals", "pending"],
  queryFn: () =>
    dataOf(
      api.GET("/v1/approvals", {
        params: { query: { status: "APPROVAL_STATUS_PENDING", page_size: 200 } },
      }),
    ),
  refetchInterval: APPROVALS_MS,
});

export const recentApprovals = queryOptions({
  queryKey: ["approvals", "recent"],
  queryFn: () => dataOf(api.GET("/v1/approvals", { params: { query: { page_size: 30 } } })),
  refetchInterval: 5 * APPROVALS_MS,
});

export const approval = (approvalId: string) =>
  queryOptions({
    queryKey: ["approval", approvalId],
    queryFn: () =>
      dataOf(
        api.GET("/v1/approvals/{approval_id}", { params: { path: { approval_id: approvalId } } }),
      ),
    refetchInterval: ({ state }) =>
      state.data && state.data.status !== "APPROVAL_STATUS_PENDING" ? false : APPROVALS_MS,
  });
