import { describe, expect, test } from "vitest";

import type { Usage } from "../src/api/types";
import { emptyRun, type RunState, type StepState } from "../src/run/state";
import { differing, inForce, pairsOf } from "../src/runs/compare/pairs";
import { layoutOf, neighbour, pathOf } from "../src/runs/graph/layout";
import { hits, matches, otherFields, toolCalls, verdicts } from "../src/runs/step/sections";
import { partsOf, shownCost } from "../src/runs/usage";

function step(stepId: string, change: Partial<StepState> = {}): StepState {
  return {
    stepId,
    revision: 0,
    agent: "sql",
    task: stepId,
    plannedTask: stepId,
    tool: "",
    input: {},
    dependsOn: [],
    status: "succeeded",
    attempt: 1,
    startTime: undefined,
    endTime: undefined,
    progress: [],
    result: undefined,
    ...change,
  };
}

const used = (sent: number, received = 0, cost = 0): Usage => ({
  model_calls: 1,
  input_tokens: String(sent),
  output_tokens: String(received),
  cached_input_tokens: "0",
  api_calls: 0,
  cost_micros: String(cost),
  models: ["m"],
  unreported_tokens: "0",
  abandoned_calls: 0,
});

describe("layout of a plan", () => {
  const diamond = [
    step("a"),
    step("b", { dependsOn: ["a"] }),
    step("c", { dependsOn: ["a"] }),
    step("d", { dependsOn: ["b", "c"] }),
  ];

  test("stands in columns by dependency, in the order of reading", () => {
    const { nodes, edges, width, height } = layoutOf(diamond);
    expect(nodes.map((node) => [node.step.stepId, node.rank])).toEqual([
      ["a", 0],
      [nodes[1]?.step.stepId, 1],
      [nodes[2]?.step.stepId, 1],
      ["d", 2],
    ]);
    expect(nodes[1]?.y).toBeLessThan(nodes[2]?.y ?? 0);
    expect(edges.map(({ from, to }) => `${from}${to}`).sort()).toEqual(["ab", "ac", "bd", "cd"]);
    expect(width).toBeGreaterThan(0);
    expect(height).toBeGreaterThan(0);
    expect(pathOf(edges[0]?.points ?? [])).toMatch(/^M[\d.]+,[\d.]+( C[\d., ]+)+$/);
  });

  test("arrow keys follow edges, and move within a column", () => {
    const layout = layoutOf(diamond);
    expect(neighbour(layout, "a", "left")).toBe("a");
    const [upper = "", lower = ""] = [1, 2].map((at) => layout.nodes[at]?.step.stepId);
    expect([upper, lower].sort()).toEqual(["b", "c"]);
    expect([upper, lower]).toContain(neighbour(layout, "a", "right"));
    expect(neighbour(layout, upper, "down")).toBe(lower);
    expect(neighbour(layout, lower, "up")).toBe(upper);
    expect(neighbour(layout, upper, "up")).toBe(upper);
    expect(neighbour(layout, "d", "right")).toBe("d");
  });

  test("takes any names, unknown dependencies, and nothing at all", () => {
    const odd = [step("constructor"), step("__proto__", { dependsOn: ["constructor", "of an earlier plan"] })];
    expect(layoutOf(odd).edges).toHaveLength(1);
    expect(layoutOf([]).nodes).toEqual([]);
  });
});

describe("pairs of steps", () => {
  test("are of the same id, then of the same agent, and others stand alone", () => {
    const left = [step("a"), step("b"), step("x", { agent: "mail" })];
    const right = [step("b"), step("q"), step("w", { agent: "web" })];
    const names = pairsOf(left, right).map((pair) => [pair.left?.stepId, pair.right?.stepId]);
    expect(names).toEqual([
      ["a", "q"],
      [undefined, "w"],
      ["b", "b"],
      ["x", undefined],
    ]);
  });

  test("say in what they differ", () => {
    const result = { answer: "1", data: { sql: "SELECT 1" } } as unknown as StepState["result"];
    const other = { answer: "1", data: { sql: "SELECT 2" } } as unknown as StepState["result"];
    const left = step("a", { result });
    expect(differing({ left, right: step("a", { result: other, status: "failed" }) })).toEqual(["status", "sql"]);
    expect(differing({ left, right: step("a", { result }) })).toEqual([]);
    expect(differing({ left, right: undefined })).toEqual([]);
  });

  test("are of the plan in force, with what it did not plan anew", () => {
    const steps = [step("a"), step("b"), step("b", { revision: 1 })];
    expect(inForce({ ...emptyRun("r"), steps })).toEqual([steps[0], steps[2]]);
  });
});

describe("sections of a step", () => {
  const progress = [
    { type: "TRACE_EVENT_TYPE_DECISION", message: "safety_check", data: { is_safe: false, user_message: "No." } },
    { type: "TRACE_EVENT_TYPE_DECISION", message: "safety_check", data: {} },
    { type: "TRACE_EVENT_TYPE_TOOL", message: "run_query", data: { arguments: { sql: "SELECT" } } },
  ].map((each) => ({ agent: "sql", create_time: "", ...each })) as unknown as StepState["progress"];

  test("hold the guard's verdicts and the tool calls", () => {
    const one = step("a", { progress });
    expect(verdicts(one)).toEqual([{ isSafe: false, message: "No.", violations: [] }]);
    expect(toolCalls(one).map((call) => call.message)).toEqual(["run_query"]);
  });

  test("hold passages of documents and of the schema, in any shape", () => {
    const chunk = { score: 0.5, text: "t", metadata: { filename: "f.pdf", page: 3, section_title: "s" } };
    expect(hits({ chunks: [chunk, null, "x"], citations: [{ doc_id: "d", snippet: "s" }] })).toEqual([
      { title: "f.pdf", place: "s · p. 3", score: 0.5, text: "t" },
      { title: "", place: "", score: undefined, text: "" },
      { title: "", place: "", score: undefined, text: "" },
      { title: "d", place: "", score: undefined, text: "s" },
    ]);
    expect(hits({ chunks: "no list" })).toEqual([]);
  });

  test("leave out what is shown elsewhere, and what is empty", () => {
    expect(otherFields({ sql: "SELECT", rows: [1], query: "q", none: [], no: null })).toEqual({ query: "q" });
  });

  test("are found by all words", () => {
    const one = step("a", { task: "Revenue of April", agent: "sql" });
    expect(matches(one, "april SQL")).toBe(true);
    expect(matches(one, "april mail")).toBe(false);
    expect(matches(one, " ")).toBe(true);
  });
});

describe("usage of a run", () => {
  test("is shown by parts, and what they leave is the answer's", () => {
    const result = { usage: used(100, 10, 5) } as StepState["result"];
    const state: RunState = {
      ...emptyRun("r"),
      plans: [{ revision: 0, stages: [], trace: [], usage: used(20) }],
      steps: [step("a", { result })],
      response: { metadata: { usage: { ...used(150, 30, 9), model_calls: 3 } } } as RunState["response"],
    };
    expect(partsOf(state).map(({ kind, counts }) => [kind, counts.calls, counts.sent, counts.costMicros])).toEqual([
      ["planning", 1, 20n, 0n],
      ["step", 1, 100n, 5n],
      ["rest", 1, 30n, 4n],
      ["total", 3, 150n, 9n],
    ]);
  });

  test("of a price that is not known is not nothing", () => {
    expect(shownCost(0n)).toBeUndefined();
    expect(shownCost(1_250_000n)).toContain("1.25");
  });
});
