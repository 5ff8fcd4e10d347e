/** What operators and administrators read of REST. */
import { queryOptions } from "@tanstack/react-query";

import { api, dataOf } from "../api/client";
import type { components, paths } from "../api/schema";

type Schemas = components["schemas"];
export type RunOverview = Schemas["RunOverview"];
export type AuditEntry = Schemas["AuditEntry"];
export type Invitation = Schemas["Invitation"];
export type ApiKey = Schemas["ApiKey"];
export type ApprovalStatus = Schemas["ApprovalOverview"]["status"];

type Query<Path extends keyof paths> = paths[Path] extends {
  get: { parameters: { query?: infer Fields } };
}
  ? NonNullable<Fields>
  : never;

export type RunFilter = Query<"/v1/operator/runs">;
export type AuditFilter = Query<"/v1/audit/{service}/entries">;

export const TRAILS = ["identity", "gateway", "memory", "documents", "files"] as const;
export type Trail = (typeof TRAILS)[number];

const PAGE = 50;
/** Figures of a running system are read anew so often. */
const REFRESH_MS = 10_000;

type Key = readonly unknown[];

const withoutPage = (key: Key) =>
  JSON.stringify(key, (name, value: unknown) => (name === "page_token" ? undefined : value));

/** A page stays until the next one is there, so that focus stays where it is; another filter begins anew. */
function pageBefore(key: Key) {
  const begin = withoutPage(key);
  return <Page>(before: Page | undefined, query: { queryKey: Key } | undefined) =>
    query && withoutPage(query.queryKey) === begin ? before : undefined;
}

export const userRuns = (query: RunFilter) =>
  queryOptions({
    queryKey: ["operate", "runs", query],
    placeholderData: pageBefore(["operate", "runs", query]),
    queryFn: () => dataOf(api.GET("/v1/operator/runs", { params: { query: { page_size: PAGE, ...query } } })),
    refetchInterval: REFRESH_MS,
  });

export const userRun = (runId: string) =>
  queryOptions({
    queryKey: ["operate", "run", runId],
    queryFn: () =>
      dataOf(api.GET("/v1/operator/runs/{run_id}", { params: { path: { run_id: runId } } })),
    refetchInterval: ({ state }) => (state.data?.finish_time ? false : REFRESH_MS),
  });

export const spend = (days: number) =>
  queryOptions({
    queryKey: ["operate", "spend", days],
    queryFn: () => dataOf(api.GET("/v1/operator/spend", { params: { query: { days } } })),
  });

export const userApprovals = (query: Query<"/v1/operator/approvals">) =>
  queryOptions({
    queryKey: ["operate", "approvals", query],
    placeholderData: pageBefore(["operate", "approvals", query]),
    queryFn: () =>
      dataOf(api.GET("/v1/operator/approvals", { params: { query: { page_size: PAGE, ...query } } })),
    refetchInterval: REFRESH_MS,
  });

export const ingestion = queryOptions({
  queryKey: ["operate", "ingestion"],
  queryFn: () => dataOf(api.GET("/v1/operator/ingestion")),
  refetchInterval: REFRESH_MS,
});

export const storage = queryOptions({
  queryKey: ["operate", "storage"],
  queryFn: () => dataOf(api.GET("/v1/operator/storage")),
});

export const users = (query: Query<"/v1/users">) =>
  queryOptions({
    queryKey: ["administer", "users", query],
    placeholderData: pageBefore(["administer", "users", query]),
    queryFn: () => dataOf(api.GET("/v1/users", { params: { query: { page_size: PAGE, ...query } } })),
  });

export const invitations = queryOptions({
  queryKey: ["administer", "invitations"],
  queryFn: () => dataOf(api.GET("/v1/invitations")),
});

export const apiKeys = (userId: string) =>
  queryOptions({
    queryKey: ["administer", "keys", userId],
    queryFn: () =>
      dataOf(api.GET("/v1/apiKeys", { params: { query: userId ? { user_id: userId } : {} } })),
  });

/** `look` counts the looks at the trail: each one reads it anew. */
export const auditEntries = (service: Trail, query: AuditFilter, look: number) =>
  queryOptions({
    queryKey: ["administer", "audit", service, query, look],
    placeholderData: pageBefore(["administer", "audit", service, query, look]),
    queryFn: () =>
      dataOf(
        api.GET("/v1/audit/{service}/entries", {
          params: { path: { service }, query: { page_size: PAGE, ...query } },
        }),
      ),
  });
