/** What the documents' pages read of REST, and how what they hold is kept up to date. */
import { infiniteQueryOptions, queryOptions, type InfiniteData, type QueryClient } from "@tanstack/react-query";

import { api, dataOf } from "../api/client";
import type { components } from "../api/schema";
import { PENDING, type DocumentState } from "./states";

export type Document = components["schemas"]["Document"];
export type Chunk = components["schemas"]["Chunk"];
type Page = components["schemas"]["ListDocumentsResponse"];

const PAGE = 200;
const LIST = ["documents", "list"];
/** Time between two looks at documents that are being read, and at whether there are any. */
const PENDING_MS = 1000;
const IDLE_MS = 15_000;

export interface Filter {
  query: string;
  states: DocumentState[];
}

export const documentList = ({ query, states }: Filter) =>
  infiniteQueryOptions({
    queryKey: [...LIST, query, states],
    queryFn: ({ pageParam }) =>
      dataOf(
        api.GET("/v1/documents", {
          params: {
            query: {
              page_size: PAGE,
              page_token: pageParam,
              ...(query ? { query } : {}),
              ...(states.length > 0 ? { states } : {}),
            },
          },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (last) => last.next_page_token || undefined,
  });

/** Documents that are being read; looked at often while there are some, or a list shows one. */
export const pendingDocuments = (isWaiting = false) =>
  queryOptions({
    queryKey: ["documents", "pending"],
    queryFn: () =>
      dataOf(api.GET("/v1/documents", { params: { query: { page_size: 200, states: [...PENDING] } } })),
    refetchInterval: ({ state }) => (isWaiting || state.data?.documents.length ? PENDING_MS : IDLE_MS),
  });

export const oneDocument = (documentId: string) =>
  queryOptions({
    queryKey: ["documents", "one", documentId],
    queryFn: () =>
      dataOf(api.GET("/v1/documents/{document_id}", { params: { path: { document_id: documentId } } })),
    refetchInterval: ({ state }) => (state.data && PENDING.includes(state.data.state) ? PENDING_MS : false),
  });

/** Passages of a document as it was at its last change. */
export const documentChunks = ({ document_id: documentId, update_time: version }: Document) =>
  infiniteQueryOptions({
    queryKey: ["documents", "chunks", documentId, version],
    queryFn: ({ pageParam }) =>
      dataOf(
        api.GET("/v1/documents/{document_id}/chunks", {
          params: { path: { document_id: documentId }, query: { page_size: 50, page_token: pageParam } },
        }),
      ),
    initialPageParam: "",
    getNextPageParam: (last) => last.next_page_token || undefined,
  });

export const passage = (chunkId: string) =>
  queryOptions({
    queryKey: ["documents", "passage", chunkId],
    queryFn: () =>
      dataOf(
        api.GET("/v1/chunks/{chunk_id}", {
          params: { path: { chunk_id: chunkId }, query: { before: 1, after: 1 } },
        }),
      ),
  });

/** Reads the lists anew from their first pages, and what is under way. */
export async function refreshDocuments(client: QueryClient): Promise<void> {
  client.setQueriesData<InfiniteData<Page, string>>({ queryKey: LIST }, (data) =>
    data && { pages: data.pages.slice(0, 1), pageParams: data.pageParams.slice(0, 1) },
  );
  await client.invalidateQueries({ queryKey: LIST });
  await client.invalidateQueries({ queryKey: pendingDocuments().queryKey });
}

/** Puts a document into all lists that show it; undefined takes it out. Lists keep their place. */
export function replaceDocument(client: QueryClient, documentId: string, document: Document | undefined): void {
  const kept = (each: Document) => (each.document_id !== documentId ? [each] : document ? [document] : []);
  client.setQueriesData<InfiniteData<Page, string>>({ queryKey: LIST }, (data) =>
    data && {
      ...data,
      pages: data.pages.map((page) => ({ ...page, documents: page.documents.flatMap(kept) })),
    },
  );
  client.setQueryData(pendingDocuments().queryKey, (data) =>
    data && {
      ...data,
      documents: data.documents.filter(
        (each) => each.document_id !== documentId || (document && PENDING.includes(document.state)),
      ),
    },
  );
  const { queryKey } = oneDocument(documentId);
  if (document) client.setQueryData(queryKey, document);
  else client.removeQueries({ queryKey });
}
