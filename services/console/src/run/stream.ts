/** Follows a run over server-sent events until it has ended, across lost connections. */
import { createParser } from "eventsource-parser";

import { ApiError, apiError } from "../api/errors";
import { request } from "../api/http";
import type { RunEvent } from "../api/types";

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 10_000;
/** REST sends a comment every 15 s; a connection silent for three times as long is dead. */
const SILENCE_MS = 45_000;

export interface Following {
  runId: string;
  /** Value of `Last-Event-ID`, asked for at each connection. */
  cursor: () => string;
  onEvent: (event: RunEvent) => void;
  /** False while the connection is lost and will be made again. */
  onConnected: (isConnected: boolean) => void;
  /** Opens a connection; another one in tests. */
  open?: (input: Request) => Promise<globalThis.Response>;
  wait?: (ms: number, signal: AbortSignal) => Promise<void>;
}

/**
 * Resolves when the run has ended or `signal` is aborted. Raises `ApiError` if the run cannot be
 * followed at all (it is unknown, or not the user's): a lost connection raises nothing.
 */
export async function follow(following: Following, signal: AbortSignal): Promise<void> {
  const { onConnected, wait = pause } = following;
  let failures = 0;
  while (!signal.aborted) {
    try {
      const isOver = await readOnce(following, signal, () => {
        failures = 0;
        onConnected(true);
      });
      if (isOver) return;
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && error.status < 500 && error.status !== 429) throw error;
    }
    onConnected(false);
    const longest = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** failures);
    failures += 1;
    await wait(longest * (0.5 + Math.random() / 2), signal).catch(() => undefined);
  }
}

async function readOnce(
  { runId, cursor, onEvent, open = request }: Following,
  signal: AbortSignal,
  onOpen: () => void,
): Promise<boolean> {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  try {
    const response = await open(
      new Request(`/v1/runs/${encodeURIComponent(runId)}:watch`, {
        headers: { Accept: "text/event-stream", "Last-Event-ID": cursor() },
        signal: AbortSignal.any([signal, silence.signal]),
      }),
    );
    if (response.status === 204) return true; // nothing is left
    if (!response.ok || !response.body) throw apiError(response, await body(response));
    onOpen();
    let isOver = false;
    let refusal: ApiError | undefined;
    const parser = createParser({
      onEvent: ({ event, data }) => {
        if (event === "done") isOver = true;
        else if (event === "error") refusal = errorEvent(data);
        else onEvent(JSON.parse(data) as RunEvent);
      },
    });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return isOver;
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      parser.feed(value);
      if (refusal) throw refusal;
      if (isOver) return true;
    }
  } finally {
    clearTimeout(timer);
  }
}

/** The error that ended a stream; its `code` is that of an HTTP status. */
function errorEvent(data: string): ApiError {
  const { error } = JSON.parse(data) as { error?: { code?: number; message?: string } };
  return new ApiError(error?.code ?? 500, error?.message ?? "", "");
}

function body(response: globalThis.Response): Promise<unknown> {
  return response.json().catch(() => undefined) as Promise<unknown>;
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    const stop = () => {
      clearTimeout(timer);
      resolve();
    };
    signal.addEventListener("abort", stop, { once: true });
    // The network is back: no reason to wait on.
    globalThis.addEventListener?.("online", stop, { once: true });
  });
}
