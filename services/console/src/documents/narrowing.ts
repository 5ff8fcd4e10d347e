/** What the list of documents can be narrowed to, as its address says it. */
import { PENDING, type DocumentState } from "./states";

export type StateFilter = "pending" | "ready" | "failed";

export interface Narrowed {
  q?: string;
  state?: StateFilter;
}

const STATES: Record<StateFilter, readonly DocumentState[]> = {
  pending: PENDING,
  ready: ["DOCUMENT_STATE_READY"],
  failed: ["DOCUMENT_STATE_FAILED"],
};

/** The parameters of an address; what is not known is left out. */
export function narrowed({ q, state }: Record<string, unknown>): Narrowed {
  return {
    ...(typeof q === "string" && q ? { q } : {}),
    ...(typeof state === "string" && Object.hasOwn(STATES, state) ? { state: state as StateFilter } : {}),
  };
}

export function statesOf(filter: StateFilter | undefined): DocumentState[] {
  return filter ? [...STATES[filter]] : [];
}
