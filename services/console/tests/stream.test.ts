import { expect, test } from "vitest";

import { ApiError } from "../src/api/errors";
import type { RunEvent } from "../src/api/types";
import { follow } from "../src/run/stream";

const message = (name: string, data: object, id = "") =>
  `${id ? `id: ${id}\n` : ""}event: ${name}\ndata: ${JSON.stringify(data)}\n\n`;
const accepted = (sequence: number) =>
  message("run_accepted", { run_id: "r", sequence: String(sequence) }, String(sequence));
const DONE = message("done", { run_id: "r", status: "RUN_STATUS_SUCCEEDED" });

interface Followed {
  sequences: string[];
  cursors: (string | null)[];
  connected: boolean[];
}

/** Follows a run whose connections answer with these bodies or failures, one after the other. */
async function followed(answers: (string | number | Error)[]): Promise<Followed> {
  globalThis.Request = class extends Request {
    constructor(input: string, init?: RequestInit) {
      super(new URL(input, "http://127.0.0.1"), init);
    }
  } as typeof Request;
  const seen: Followed = { sequences: [], cursors: [], connected: [] };
  await follow(
    {
      runId: "r",
      cursor: () => seen.sequences.at(-1) ?? "0",
      onEvent: (event: RunEvent) => seen.sequences.push(event.sequence),
      onConnected: (isConnected) => seen.connected.push(isConnected),
      wait: () => Promise.resolve(),
      open: (input) => {
        seen.cursors.push(input.headers.get("Last-Event-ID"));
        const answer = answers.shift();
        if (answer instanceof Error) return Promise.reject(answer);
        if (typeof answer === "number") {
          const body = answer === 204 ? null : JSON.stringify({ error: { message: "No." } });
          return Promise.resolve(new Response(body, { status: answer }));
        }
        return Promise.resolve(new Response(answer ?? DONE));
      },
    },
    new AbortController().signal,
  );
  return seen;
}

test("a stream that ends with done is over", async () => {
  const seen = await followed([accepted(1) + accepted(2) + DONE]);
  expect(seen).toEqual({ sequences: ["1", "2"], cursors: ["0"], connected: [true] });
});

test("a lost connection goes on behind the last event, without an error", async () => {
  const seen = await followed([accepted(1), new TypeError("network"), 503, accepted(2) + DONE]);
  expect(seen.sequences).toEqual(["1", "2"]);
  expect(seen.cursors).toEqual(["0", "1", "1", "1"]);
  expect(seen.connected).toEqual([true, false, false, false, true]);
});

test("a run that has ended before answers 204, and is over", async () => {
  expect((await followed([204])).sequences).toEqual([]);
});

test("a run of another user raises the error", async () => {
  await expect(followed([404])).rejects.toThrow(ApiError);
});

test("an error event of a busy server is waited out, one of a refusal raised", async () => {
  const busy = message("error", { error: { code: 503, message: "Busy." } });
  expect((await followed([busy, DONE])).cursors).toHaveLength(2);
  const refused = message("error", { error: { code: 403, message: "Not yours." } });
  await expect(followed([refused])).rejects.toThrow("Not yours.");
});
