import { describe, expect, test } from "vitest";

import type { Run, RunEvent } from "../src/api/types";
import { applyEvent, cursorOf, emptyRun, endedRun, type RunState } from "../src/run/state";

const at = (second: number) => `2026-06-15T12:00:${String(second).padStart(2, "0")}Z`;

function event(sequence: number, kind: object): RunEvent {
  return { run_id: "r", sequence: String(sequence), create_time: at(sequence), ...kind } as RunEvent;
}

const delta = (sequence: number, text: string, offset: number, attempt = 1) =>
  event(sequence, { answer_delta: { text, attempt, offset: String(offset) } });

const step = (id: string, depends_on: string[] = []) => ({ step_id: id, agent: "sql", task: id, depends_on });

const EVENTS: RunEvent[] = [
  event(1, { run_accepted: { question: "Why?", conversation_id: "c" } }),
  event(2, { planned: { plan: { steps: [step("a"), step("b", ["a"])] }, revision: 0 } }),
  event(3, { step_started: { step_id: "a", agent_name: "sql", task: "a", attempt: 1, revision: 0 } }),
  event(4, { step_progress: { step_id: "a", events: [{ message: "query" }] } }),
  event(5, {
    step_finished: {
      step_id: "a",
      revision: 0,
      result: { agent_name: "sql", status: "AGENT_EXECUTION_STATUS_SUCCEEDED" },
    },
  }),
  event(6, { answer_started: { attempt: 1 } }),
  delta(6, "Because ", 0),
  delta(6, "of that.", 8),
  event(9, {
    run_finished: { response: { status: "RUN_STATUS_SUCCEEDED", answer: "Because of that.", agent_results: [] } },
  }),
];

const fold = (events: RunEvent[], from = emptyRun("r")): RunState => events.reduce(applyEvent, from);

describe("state of a run", () => {
  test("follows its events", () => {
    const state = fold(EVENTS);
    expect(state.question).toBe("Why?");
    expect(state.status).toBe("RUN_STATUS_SUCCEEDED");
    expect(state.steps.map((each) => [each.stepId, each.status, each.progress.length])).toEqual([
      ["a", "succeeded", 1],
      ["b", "waiting", 0],
    ]);
    expect(state.steps[0]).toMatchObject({ startTime: at(3), endTime: at(5) });
    expect(state.answer.text).toBe("Because of that.");
  });

  test("is the same when the stream begins anew at any event, with what came before again", () => {
    const whole = fold(EVENTS);
    for (let cut = 0; cut <= EVENTS.length; cut++) {
      for (let again = 0; again <= cut; again++) {
        const state = fold(EVENTS.slice(again), fold(EVENTS.slice(0, cut)));
        expect(state).toEqual(whole);
      }
    }
  });

  test("appends of text that is known in part only the rest, counted in characters", () => {
    const started = fold(EVENTS.slice(0, 6));
    const once = applyEvent(started, delta(6, "a👍b", 0));
    const state = applyEvent(once, delta(6, "👍bc", 1));
    expect(state.answer).toEqual({ attempt: 1, text: "a👍bc", characters: 4 });
    expect(cursorOf(state)).toBe("6.4");
  });

  test("text that leaves a gap, or is of another attempt, is not appended", () => {
    const started = fold(EVENTS.slice(0, 6));
    expect(applyEvent(started, delta(6, "late", 3))).toBe(started);
    expect(applyEvent(started, delta(6, "old", 0, 2))).toBe(started);
  });

  test("a new attempt at the answer voids the text before", () => {
    const state = fold([
      ...EVENTS.slice(0, 7),
      event(7, { answer_started: { attempt: 2 } }),
      delta(7, "New", 0, 2),
    ]);
    expect(state.answer).toEqual({ attempt: 2, text: "New", characters: 3 });
  });

  test("an approval holds its step until it is decided, and is replaced by its decision", () => {
    const approval = { approval_id: "x", step_id: "a", status: "APPROVAL_STATUS_PENDING" };
    const waiting = fold([...EVENTS.slice(0, 3), event(4, { approval_requested: { approval } })]);
    expect(waiting.status).toBe("RUN_STATUS_WAITING_FOR_APPROVAL");
    expect(waiting.steps[0]?.status).toBe("approval");
    const decided = applyEvent(
      waiting,
      event(5, { approval_resolved: { approval: { ...approval, status: "APPROVAL_STATUS_DENIED" } } }),
    );
    expect(decided.approvals.map((each) => each.status)).toEqual(["APPROVAL_STATUS_DENIED"]);
    expect(decided.steps[0]?.status).toBe("running");
    expect(decided.status).toBe("RUN_STATUS_EXECUTING");
  });

  test("a revision adds its steps beside those of the first plan, also under the same id", () => {
    const state = fold([
      ...EVENTS.slice(0, 5),
      event(6, { revision_started: { revision: 1, failed_step_ids: ["a"] } }),
      event(7, { planned: { plan: { steps: [step("a")] }, revision: 1 } }),
    ]);
    expect(state.steps.map((each) => [each.stepId, each.revision])).toEqual([
      ["a", 0],
      ["b", 0],
      ["a", 1],
    ]);
    expect(state.isRevising).toBe(false);
  });

  test("events of a newer gateway change nothing but the position", () => {
    const state = applyEvent(fold(EVENTS.slice(0, 2)), event(3, { something_new: {} }));
    expect(state.sequence).toBe(3);
    expect(state.status).toBe("RUN_STATUS_PLANNED");
  });

  test("a stored run has its answer and steps without events", () => {
    const state = endedRun({
      run_id: "r",
      question: "Why?",
      status: "RUN_STATUS_FAILED",
      last_sequence: "9",
      plan: { steps: [step("a")] },
      response: {
        status: "RUN_STATUS_FAILED",
        answer: "No.",
        agent_results: [
          { agent_name: "sql", task_description: "a", status: "AGENT_EXECUTION_STATUS_FAILED" },
        ],
      },
    } as unknown as Run);
    expect(state.steps.map((each) => [each.stepId, each.status])).toEqual([["a", "failed"]]);
    expect(state.answer.text).toBe("No.");
  });
});
