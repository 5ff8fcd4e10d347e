/**
 * Uploads of files, a few at a time, across lost connections.
 *
 * The server keeps nothing of an upload that breaks off, and finds the same content again by its digest: an
 * interrupted one is sent anew, and never stored twice.
 */
import { ApiError } from "../api/errors";
import { session } from "../api/session";
import { sendFile, UnreadableFile, type Sending } from "./sending";

export type UploadState = "waiting" | "sending" | "storing" | "interrupted" | "done" | "failed" | "cancelled";

export interface Upload<Result> {
  id: number;
  name: string;
  sizeBytes: number;
  state: UploadState;
  /** Share that was sent, 0 to 1. */
  sent: number;
  /** What the server answered, once it is done. */
  result: Result | undefined;
  failure: Error | undefined;
}

const PARALLEL = 3;
/** Attempts in a row after which an upload waits for its user. */
const ATTEMPTS = 8;
const FIRST_WAIT_MS = 1000;
const LONGEST_WAIT_MS = 30_000;
const UNDER_WAY = new Set<UploadState>(["waiting", "sending", "storing", "interrupted"]);

interface Work {
  file: File;
  attempts: number;
  abort: AbortController | undefined;
  timer: ReturnType<typeof setTimeout> | undefined;
}

/** Holds all uploads to one address, and notifies listeners when they change. One per address and page. */
export class Uploads<Result> {
  private list: readonly Upload<Result>[] = [];
  private readonly work = new Map<number, Work>();
  private readonly listeners = new Set<() => void>();
  private readonly path: string;
  private readonly sendOnce: Sending<Result>;
  private last = 0;

  constructor(path: string, sendOnce: Sending<Result> = sendFile) {
    this.path = path;
    this.sendOnce = sendOnce;
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
  readonly read = (): readonly Upload<Result>[] => this.list;

  add(files: Iterable<File>): void {
    const added = [...files].map((file): Upload<Result> => {
      const id = ++this.last;
      this.work.set(id, { file, attempts: 0, abort: undefined, timer: undefined });
      return {
        id,
        name: file.name,
        sizeBytes: file.size,
        state: "waiting",
        sent: 0,
        result: undefined,
        failure: undefined,
      };
    });
    this.set([...this.list, ...added]);
    this.pump();
  }

  cancel(id: number): void {
    const upload = this.list.find((each) => each.id === id);
    if (!upload || !UNDER_WAY.has(upload.state)) return;
    this.end(id, { state: "cancelled" });
    this.pump();
  }

  /** Sends one again at once that was interrupted, failed or was cancelled. */
  again(id: number): void {
    const work = this.work.get(id);
    if (!work) return;
    clearTimeout(work.timer);
    work.attempts = 0;
    this.change(id, { state: "waiting", sent: 0, failure: undefined });
    this.pump();
  }

  /** Sends everything again that waits for the connection. */
  online(): void {
    for (const each of this.list) if (each.state === "interrupted") this.again(each.id);
  }

  /** Takes what has ended off the list. */
  clear(): void {
    this.set(this.list.filter((each) => UNDER_WAY.has(each.state)));
    for (const id of this.work.keys()) {
      if (!this.list.some((each) => each.id === id)) this.work.delete(id);
    }
  }

  /** Ends and forgets all: nothing of a user stays for the next one. */
  forget(): void {
    for (const each of this.list) this.cancel(each.id);
    this.clear();
  }

  get isBusy(): boolean {
    return this.list.some((each) => UNDER_WAY.has(each.state));
  }

  private pump(): void {
    let running = this.list.filter((each) => each.state === "sending" || each.state === "storing").length;
    for (const each of this.list) {
      if (running >= PARALLEL) return;
      if (each.state !== "waiting") continue;
      running += 1;
      void this.send(each.id);
    }
  }

  private async send(id: number): Promise<void> {
    const work = this.work.get(id);
    if (!work) return;
    work.attempts += 1;
    const abort = new AbortController();
    work.abort = abort;
    this.change(id, { state: "sending", sent: 0, failure: undefined });
    const onSent = (sent: number) => {
      if (!abort.signal.aborted) this.change(id, { sent, state: sent < 1 ? "sending" : "storing" });
    };
    try {
      const result = await this.sendOnce(this.path, work.file, onSent, abort.signal);
      if (!abort.signal.aborted) this.end(id, { state: "done", sent: 1, result });
    } catch (error) {
      if (!abort.signal.aborted) this.broke(id, work, error as Error);
    }
    this.pump();
  }

  private broke(id: number, work: Work, failure: Error): void {
    if (!mayHelp(failure) || work.attempts >= ATTEMPTS) {
      this.change(id, { state: "failed", failure });
      return;
    }
    const backOff = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** (work.attempts - 1));
    const wait = failure instanceof ApiError && failure.retryAfterS ? failure.retryAfterS * 1000 : backOff;
    this.change(id, { state: "interrupted", sent: 0, failure });
    work.timer = setTimeout(() => {
      this.change(id, { state: "waiting" });
      this.pump();
    }, wait);
  }

  /** The upload is over; its file is kept only where it may be sent again. */
  private end(id: number, change: Partial<Upload<Result>>): void {
    const work = this.work.get(id);
    clearTimeout(work?.timer);
    work?.abort?.abort();
    if (change.state === "done") this.work.delete(id);
    this.change(id, change);
  }

  private change(id: number, change: Partial<Upload<Result>>): void {
    this.set(this.list.map((each) => (each.id === id ? { ...each, ...change } : each)));
  }

  private set(list: readonly Upload<Result>[]): void {
    this.list = list;
    for (const listener of this.listeners) listener();
  }
}

/** Whether sending the same file again later may help; full workspaces and the like need their user. */
function mayHelp(error: Error): boolean {
  if (error instanceof UnreadableFile) return false;
  if (!(error instanceof ApiError)) return true; // no connection
  if (error.status === 429) return error.reason === "UPLOAD_LIMIT" || !error.reason.endsWith("_LIMIT");
  return error.status >= 500;
}

/** An upload list of the page: goes on when the connection is back, ends with the session. */
export function pageUploads<Result>(path: string): Uploads<Result> {
  const uploads = new Uploads<Result>(path);
  addEventListener("online", () => uploads.online());
  addEventListener("beforeunload", (event) => {
    if (uploads.isBusy) event.preventDefault();
  });
  session.subscribe(() => {
    if (session.read().current?.state === "SIGNED_OUT") uploads.forget();
  });
  return uploads;
}
