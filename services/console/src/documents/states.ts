import type { components } from "../api/schema";

export type DocumentState = components["schemas"]["Document"]["state"];

/** States of a document that is not done yet. */
export const PENDING: readonly DocumentState[] = [
  "DOCUMENT_STATE_QUEUED",
  "DOCUMENT_STATE_PARSING",
  "DOCUMENT_STATE_INDEXING",
];
