/**
 * State of a run, folded from its events.
 *
 * `applyEvent` is pure and idempotent: an event whose sequence is known changes nothing, and of text
 * that is known in part only the rest is appended. So a stream may begin anew anywhere before its end.
 */
import type {
  AgentResult,
  Approval,
  PlannedEvent,
  Response,
  Run,
  RunEvent,
  RunStatus,
  TraceEvent,
} from "../api/types";
import { hasEnded } from "./status";

export type StepStatus = "waiting" | "running" | "approval" | "succeeded" | "failed" | "skipped";

export interface StepState {
  stepId: string;
  revision: number;
  agent: string;
  /** What it was asked, references resolved; before it starts, as planned. */
  task: string;
  /** The task as the plan says it, with references. */
  plannedTask: string;
  tool: string;
  /** Input of the tool, references resolved. */
  input: Record<string, unknown>;
  dependsOn: string[];
  status: StepStatus;
  attempt: number;
  startTime: string | undefined;
  endTime: string | undefined;
  progress: TraceEvent[];
  result: AgentResult | undefined;
}

export interface RunState {
  runId: string;
  /** Sequence of the last event; 0 before the first. */
  sequence: number;
  status: RunStatus;
  question: string;
  conversationId: string;
  /** Model that the question chose; empty: none. */
  model: string;
  createTime: string | undefined;
  plans: PlannedEvent[];
  steps: StepState[];
  approvals: Approval[];
  answer: { attempt: number; text: string; characters: number };
  response: Response | undefined;
  cancelRequested: boolean;
  isRevising: boolean;
  /** All events but pieces of text, as they came. */
  events: RunEvent[];
}

/** State of a run of which no event is known. */
export function emptyRun(runId: string, question = ""): RunState {
  return {
    runId,
    sequence: 0,
    status: "RUN_STATUS_ACCEPTED",
    question,
    conversationId: "",
    model: "",
    createTime: undefined,
    plans: [],
    steps: [],
    approvals: [],
    answer: { attempt: 0, text: "", characters: 0 },
    response: undefined,
    cancelRequested: false,
    isRevising: false,
    events: [],
  };
}

/** State of a run that has ended, from what is stored of it, without its events. */
export function endedRun(run: Run): RunState {
  const empty = emptyRun(run.run_id, run.question);
  const { response } = run;
  const results = response?.agent_results ?? [];
  const planned = run.plan?.steps ?? [];
  return {
    ...empty,
    sequence: Number(run.last_sequence),
    status: run.status,
    conversationId: run.conversation_id,
    model: run.model,
    createTime: run.create_time,
    steps: results.map((result, index) => {
      const named = planned.find((step) => step.task === result.task_description);
      const stepId = named?.step_id ?? result.agent_id ?? String(index);
      return finishedStep(newStep(stepId, 0, result.agent_name, result.task_description), result);
    }),
    answer: { attempt: 1, text: response?.answer ?? "", characters: 0 },
    response,
  };
}

/** Folds one event into the state; returns the same state if the event is known. */
export function applyEvent(state: RunState, event: RunEvent): RunState {
  if (event.answer_delta) return appendText(state, event);
  const sequence = Number(event.sequence);
  if (sequence <= state.sequence) return state;
  const next = { ...state, sequence, events: [...state.events, event] };
  return { ...next, ...changes(next, event) };
}

function changes(state: RunState, event: RunEvent): Partial<RunState> {
  if (event.run_accepted) {
    const { question, conversation_id, model } = event.run_accepted;
    return { question, conversationId: conversation_id, model, createTime: event.create_time };
  }
  if (event.planned) return planned(state, event.planned);
  if (event.step_started) {
    const { step_id, revision, agent_name, task, attempt, tool_name, sub_task_input } = event.step_started;
    const started = {
      agent: agent_name,
      task,
      attempt,
      tool: tool_name,
      input: sub_task_input,
      startTime: event.create_time,
      status: "running" as const,
    };
    return {
      status: "RUN_STATUS_EXECUTING",
      steps: changedStep(state.steps, step_id, revision, (step) => ({ ...step, ...started })),
    };
  }
  if (event.step_progress) {
    const { step_id, events, revision } = event.step_progress;
    return {
      steps: changedStep(state.steps, step_id, revision, (step) => ({
        ...step,
        progress: [...step.progress, ...events],
      })),
    };
  }
  if (event.step_finished) {
    const { step_id, result, revision } = event.step_finished;
    return {
      steps: changedStep(state.steps, step_id, revision, (step) =>
        result ? { ...finishedStep(step, result), endTime: event.create_time } : step,
      ),
    };
  }
  if (event.approval_requested?.approval) {
    const { approval } = event.approval_requested;
    return {
      status: "RUN_STATUS_WAITING_FOR_APPROVAL",
      approvals: withApproval(state.approvals, approval),
      steps: changedStep(state.steps, approval.step_id, undefined, (step) => ({
        ...step,
        status: "approval",
      })),
    };
  }
  if (event.approval_resolved?.approval) {
    const { approval } = event.approval_resolved;
    const approvals = withApproval(state.approvals, approval);
    const isWaiting = approvals.some((each) => each.status === "APPROVAL_STATUS_PENDING");
    return {
      approvals,
      status: isWaiting ? state.status : "RUN_STATUS_EXECUTING",
      steps: changedStep(state.steps, approval.step_id, undefined, (step) =>
        step.status === "approval" ? { ...step, status: "running" } : step,
      ),
    };
  }
  if (event.revision_started) return { isRevising: true };
  if (event.answer_started) {
    const { attempt } = event.answer_started;
    return { status: "RUN_STATUS_COMPOSING", answer: { attempt, text: "", characters: 0 } };
  }
  if (event.run_finished?.response) {
    const { response } = event.run_finished;
    const answer = { ...state.answer, text: response.answer };
    return { status: response.status, response, answer, isRevising: false };
  }
  if (event.cancel_requested) return { cancelRequested: true };
  return {}; // such as run_resumed, and what a newer gateway adds
}

function planned(state: RunState, event: PlannedEvent): Partial<RunState> {
  const known = new Set(state.steps.map((step) => key(step.stepId, step.revision)));
  const added = (event.plan?.steps ?? [])
    .filter((step) => !known.has(key(step.step_id, event.revision)))
    .map((step) => newStep(step.step_id, event.revision, step.agent, step.task, step.depends_on));
  return {
    status: "RUN_STATUS_PLANNED",
    plans: [...state.plans, event],
    steps: [...state.steps, ...added],
    isRevising: false,
  };
}

function newStep(
  stepId: string,
  revision: number,
  agent: string,
  task: string,
  dependsOn: string[] = [],
): StepState {
  return {
    stepId,
    revision,
    agent,
    task,
    plannedTask: task,
    tool: "",
    input: {},
    dependsOn,
    status: "waiting",
    attempt: 0,
    startTime: undefined,
    endTime: undefined,
    progress: [],
    result: undefined,
  };
}

const RESULTS: Partial<Record<AgentResult["status"], StepStatus>> = {
  AGENT_EXECUTION_STATUS_SUCCEEDED: "succeeded",
  AGENT_EXECUTION_STATUS_SKIPPED: "skipped",
  AGENT_EXECUTION_STATUS_AWAITING_APPROVAL: "approval",
};

function finishedStep(step: StepState, result: AgentResult): StepState {
  return { ...step, status: RESULTS[result.status] ?? "failed", result };
}

/** Changes a step by its id, of a revision or, if that is not said, of the latest one that has it. */
function changedStep(
  steps: StepState[],
  stepId: string,
  revision: number | undefined,
  change: (step: StepState) => StepState,
): StepState[] {
  const index = steps.findLastIndex(
    (step) => step.stepId === stepId && (revision === undefined || step.revision === revision),
  );
  if (index < 0) return [...steps, change(newStep(stepId, revision ?? 0, "", ""))];
  return steps.map((step, at) => (at === index ? change(step) : step));
}

function withApproval(approvals: Approval[], approval: Approval): Approval[] {
  const others = approvals.filter((each) => each.approval_id !== approval.approval_id);
  return [...others, approval];
}

function appendText(state: RunState, event: RunEvent): RunState {
  const piece = event.answer_delta;
  if (!piece || hasEnded(state.status) || piece.attempt !== state.answer.attempt) return state;
  // Offsets count characters (Unicode code points), strings here count UTF-16 units.
  const characters = [...piece.text];
  const known = state.answer.characters - Number(piece.offset);
  if (known < 0 || known >= characters.length) return state;
  return {
    ...state,
    answer: {
      attempt: piece.attempt,
      text: state.answer.text + characters.slice(known).join(""),
      characters: state.answer.characters + characters.length - known,
    },
  };
}

function key(stepId: string, revision: number): string {
  return `${String(revision)}/${stepId}`;
}

/** Where a stream goes on: the value of `Last-Event-ID`. */
export function cursorOf(state: RunState): string {
  const { characters } = state.answer;
  const isWriting = state.status === "RUN_STATUS_COMPOSING" && characters > 0;
  return isWriting ? `${String(state.sequence)}.${String(characters)}` : String(state.sequence);
}
