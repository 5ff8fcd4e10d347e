/** What the panel of a step shows of its result and trace. Pure. */
import type { TraceEvent } from "../../api/types";
import type { StepState } from "../../run/state";

export const DIALECTS = ["sql", "sql_postgres", "sql_mysql", "sql_server", "sql_sqlite"] as const;
export type Dialect = (typeof DIALECTS)[number];

/** Fields of results that have a place of their own in the panel. */
const PLACED: ReadonlySet<string> = new Set([
  ...DIALECTS,
  "code",
  "used_tables",
  "rows",
  "row_count",
  "assumptions",
  "chunks",
  "citations",
  "sources",
]);

/** What the SQL guard decided about one query. */
export interface Verdict {
  isSafe: boolean;
  message: string;
  violations: unknown[];
}

export function verdicts(step: StepState): Verdict[] {
  return step.progress.flatMap(({ message, data }) =>
    message === "safety_check" && typeof data["is_safe"] === "boolean"
      ? [
          {
            isSafe: data["is_safe"],
            message: textOf(data["user_message"]),
            violations: listOf(data["violations"]),
          },
        ]
      : [],
  );
}

export function toolCalls(step: StepState): TraceEvent[] {
  return step.progress.filter((event) => event.type === "TRACE_EVENT_TYPE_TOOL");
}

/** A passage that a search of the step found. */
export interface Hit {
  title: string;
  place: string;
  score: number | undefined;
  text: string;
}

/** Passages of documents, and entries of the schema's index. */
export function hits(data: Record<string, unknown>): Hit[] {
  return [...listOf(data["chunks"]), ...listOf(data["citations"])].map((each) => {
    const found = recordOf(each);
    const metadata = recordOf(found["metadata"]);
    const page = Number(metadata["page"]);
    const score = Number(found["score"]);
    return {
      title: textOf(metadata["filename"] ?? found["doc_id"] ?? found["chunk_id"]),
      place: [textOf(metadata["section_title"]), page > 0 ? `p. ${String(page)}` : ""]
        .filter(Boolean)
        .join(" · "),
      score: found["score"] !== undefined && Number.isFinite(score) ? score : undefined,
      text: textOf(found["text"] ?? found["snippet"]),
    };
  });
}

/** Fields of the result without a place of their own; empty ones are left out. */
export function otherFields(data: Record<string, unknown>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(data).filter(([name, value]) => !PLACED.has(name) && !isEmpty(value)),
  );
}

/** Whether the step's text, as a person would search for it, holds all words. */
export function matches(step: StepState, query: string): boolean {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return true;
  const { result } = step;
  const all = [
    step.stepId,
    step.agent,
    step.task,
    result?.task_description,
    result?.answer,
    result?.error?.type,
    result?.error?.message,
    ...DIALECTS.map((name) => textOf(result?.data?.[name])),
  ];
  const text = all.join("\n").toLowerCase();
  return words.every((word) => text.includes(word));
}

function isEmpty(value: unknown): boolean {
  if (value === null || value === undefined || value === "") return true;
  return typeof value === "object" && Object.keys(value).length === 0;
}

function textOf(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

function listOf(value: unknown): unknown[] {
  return Array.isArray(value) ? value : [];
}

function recordOf(value: unknown): Record<string, unknown> {
  return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
}
