/** Charts are drawn one after another in a worker, which is ended when one takes too long. */
import { scriptAddress } from "../text/trusted";
import type { Picture } from "./draw";
import address from "./draw.worker.ts?worker&url";
import type { Frame } from "./look";
import type { ChartSpec, Problem } from "./spec";

export interface Task {
  spec: ChartSpec;
  frame: Frame;
}

export interface Answer {
  /** Unset if it could not be drawn. */
  picture: Picture | undefined;
}

export type Drawn = { picture: Picture } | { problem: Problem };

/** The part of `Worker` that is used. */
export interface Drawer {
  onmessage: ((event: MessageEvent<Answer>) => void) | null;
  onerror: ((event: ErrorEvent) => void) | null;
  postMessage: (task: Task) => void;
  terminate: () => void;
}

const DEADLINE_MS = 10_000;
const IDLE_MS = 30_000;

/** A queue of drawings over one worker, which ends when it has been idle. */
export class Drawing {
  private worker: Drawer | undefined;
  private last: Promise<unknown> = Promise.resolve();
  private waiting = 0;
  private idle: ReturnType<typeof setTimeout> | undefined;
  private readonly start: () => Drawer;
  private readonly deadlineMs: number;

  constructor(start: () => Drawer, deadlineMs = DEADLINE_MS) {
    this.start = start;
    this.deadlineMs = deadlineMs;
  }

  /** Draws after what waits already; an aborted task is not begun. Rejects for no reason but abortion. */
  draw(task: Task, signal: AbortSignal): Promise<Drawn> {
    clearTimeout(this.idle);
    this.waiting += 1;
    const drawn = this.last.then(() => {
      signal.throwIfAborted();
      return this.drawNow(task);
    });
    this.last = drawn
      .catch(() => undefined)
      .then(() => {
        this.waiting -= 1;
        if (this.waiting === 0) this.idle = setTimeout(() => this.stop(), IDLE_MS);
      });
    return drawn;
  }

  private drawNow(task: Task): Promise<Drawn> {
    return new Promise((resolve) => {
      const worker = (this.worker ??= this.start());
      const timer = setTimeout(() => {
        this.stop();
        resolve({ problem: { kind: "slow" } });
      }, this.deadlineMs);
      worker.onmessage = ({ data }) => {
        clearTimeout(timer);
        resolve(data.picture ? { picture: data.picture } : { problem: { kind: "invalid" } });
      };
      worker.onerror = () => {
        clearTimeout(timer);
        this.stop(); // such as one that ran out of memory
        resolve({ problem: { kind: "invalid" } });
      };
      worker.postMessage(task);
    });
  }

  private stop(): void {
    this.worker?.terminate();
    this.worker = undefined;
  }
}

/** A drawing queue over the worker of this build. */
export function pageDrawing(): Drawing {
  return new Drawing(() => new Worker(scriptAddress(address), { type: "module" }) as Drawer);
}
