/** Which steps of two runs belong together, and what differs between them. Pure. */
import type { RunState, StepState } from "../../run/state";
import { DIALECTS } from "../step/sections";

export interface Pair {
  left: StepState | undefined;
  right: StepState | undefined;
}

/** Steps of the last attempts at each plan: what was planned anew replaces what it was before. */
export function inForce(state: RunState): StepState[] {
  const latest = Math.max(0, ...state.steps.map((step) => step.revision));
  const kept = new Set(state.steps.filter((step) => step.revision === latest).map((step) => step.stepId));
  return state.steps.filter((step) => step.revision === latest || !kept.has(step.stepId));
}

/**
 * Pairs steps: those of the same id and agent, then what is left by agent, in order. The order is that
 * of the left run, and a step of the right one alone stands behind the one that it followed there.
 */
export function pairsOf(left: StepState[], right: StepState[]): Pair[] {
  const free = new Set(right);
  const partners = new Map<StepState, StepState>();
  const same = [
    (one: StepState, other: StepState) => one.stepId === other.stepId && one.agent === other.agent,
    (one: StepState, other: StepState) => one.agent === other.agent,
  ];
  for (const isSame of same) {
    for (const step of left) {
      if (partners.has(step)) continue;
      const found = [...free].find((other) => isSame(step, other));
      if (!found) continue;
      partners.set(step, found);
      free.delete(found);
    }
  }
  const pairs: Pair[] = left.map((step) => ({ left: step, right: partners.get(step) }));
  for (const [index, step] of right.entries()) {
    if (!free.has(step)) continue;
    const before = right[index - 1];
    const at = before ? pairs.findIndex((pair) => pair.right === before) : -1;
    pairs.splice(at + 1, 0, { left: undefined, right: step });
  }
  return pairs;
}

/** What of a step is compared, by name; times are not, as they always differ. */
export type Aspect = "agent" | "task" | "dependsOn" | "status" | "sql" | "program" | "answer" | "table" | "error";

export function aspectsOf(step: StepState): Record<Aspect, string> {
  const { result } = step;
  const data: Record<string, unknown> = result?.data ?? {};
  const sql = DIALECTS.map((name) => data[name]).find((each) => typeof each === "string" && each !== "");
  return {
    agent: step.agent,
    task: result?.task_description || step.task,
    dependsOn: [...step.dependsOn].sort().join(", "),
    status: step.status,
    sql: typeof sql === "string" ? sql : "",
    program: typeof data["code"] === "string" ? data["code"] : "",
    answer: result?.answer ?? "",
    table: result?.table ? tableText(result.table) : "",
    error: result?.error ? `${result.error.type}: ${result.error.message}` : "",
  };
}

export function differing({ left, right }: Pair): Aspect[] {
  if (!left || !right) return [];
  const one = aspectsOf(left);
  const other = aspectsOf(right);
  return (Object.keys(one) as Aspect[]).filter((aspect) => one[aspect] !== other[aspect]);
}

/** A table as lines, so that its rows can be compared like lines of text. */
function tableText(table: NonNullable<NonNullable<StepState["result"]>["table"]>): string {
  const lines = [table.columns.map((column) => column.name), ...table.rows];
  return lines.map((line) => (Array.isArray(line) ? line.map(cellOf).join(" | ") : cellOf(line))).join("\n");
}

function cellOf(cell: unknown): string {
  return typeof cell === "string" ? cell : JSON.stringify(cell);
}
