/** Tokens, calls and cost of parts of a run. Counts are exact: strings of 64-bit integers. */
import type { Usage } from "../api/types";
import type { RunState } from "../run/state";

/** The counts of a usage that are shown. */
export interface Counts {
  calls: number;
  sent: bigint;
  cached: bigint;
  received: bigint;
  costMicros: bigint;
  abandoned: number;
  otherCalls: number;
  models: string[];
}

export interface Part {
  kind: "planning" | "step" | "rest" | "total";
  /** Id of a step, with its revision; revision of a plan; empty otherwise. */
  name: string;
  revision: number;
  counts: Counts;
}

export function countsOf(usage: Usage): Counts {
  return {
    calls: usage.model_calls,
    sent: BigInt(usage.input_tokens),
    cached: BigInt(usage.cached_input_tokens),
    received: BigInt(usage.output_tokens),
    costMicros: BigInt(usage.cost_micros),
    abandoned: usage.abandoned_calls,
    otherCalls: usage.api_calls,
    models: usage.models,
  };
}

/** What each part of a run used: plans, steps, and once it has ended the rest and the sum. */
export function partsOf(state: RunState): Part[] {
  const planning = state.plans.flatMap(({ usage, revision }): Part[] =>
    usage ? [{ kind: "planning", name: "", revision, counts: countsOf(usage) }] : [],
  );
  const steps = state.steps.flatMap(({ stepId, revision, result }): Part[] =>
    result?.usage ? [{ kind: "step", name: stepId, revision, counts: countsOf(result.usage) }] : [],
  );
  const parts = [...planning, ...steps];
  const usage = state.response?.metadata?.usage;
  const shown = parts.filter((part) => isUsed(part.counts));
  if (!usage) return shown;
  const total = countsOf(usage);
  const rest = minus(total, parts.map((part) => part.counts));
  return [
    ...shown,
    ...(isUsed(rest) ? [{ kind: "rest", name: "", revision: 0, counts: rest } as const] : []),
    { kind: "total", name: "", revision: 0, counts: total },
  ];
}

function isUsed({ calls, sent, received, otherCalls, abandoned }: Counts): boolean {
  return calls > 0 || sent > 0n || received > 0n || otherCalls > 0 || abandoned > 0;
}

/** The sum without its parts; nothing below zero, should parts say more than the sum. */
function minus(total: Counts, parts: Counts[]): Counts {
  const left = (name: "calls" | "abandoned" | "otherCalls") =>
    Math.max(0, parts.reduce((rest, part) => rest - part[name], total[name]));
  const leftOf = (name: "sent" | "cached" | "received" | "costMicros") => {
    const rest = parts.reduce((before, part) => before - part[name], total[name]);
    return rest > 0n ? rest : 0n;
  };
  const known = new Set(parts.flatMap((part) => part.models));
  return {
    calls: left("calls"),
    sent: leftOf("sent"),
    cached: leftOf("cached"),
    received: leftOf("received"),
    costMicros: leftOf("costMicros"),
    abandoned: left("abandoned"),
    otherCalls: left("otherCalls"),
    models: total.models.filter((model) => !known.has(model)),
  };
}

export function grouped(count: bigint | number): string {
  return new Intl.NumberFormat().format(count);
}

/** Cost in US dollars; undefined if no price is known. */
export function shownCost(micros: bigint): string | undefined {
  if (micros === 0n) return undefined;
  return new Intl.NumberFormat(undefined, {
    style: "currency",
    currency: "USD",
    minimumFractionDigits: 2,
    maximumFractionDigits: 6,
  }).format(Number(micros) / 1_000_000);
}
