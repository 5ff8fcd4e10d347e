/** A run as it is now: followed while it lives, painted at most once a frame. */
import { useEffect, useState, useSyncExternalStore } from "react";

import { applyEvent, cursorOf, emptyRun, type RunState } from "./state";
import { follow } from "./stream";

export interface LiveRun {
  state: RunState;
  isConnected: boolean;
  failure: Error | undefined;
}

/** Follows a run from its first event until it has ended or the page leaves it. */
export function useRun(runId: string, question = ""): LiveRun {
  const [store] = useState(() => new RunStore(runId, question));
  useEffect(() => store.start(), [store]);
  return useSyncExternalStore(store.subscribe, store.read);
}

class RunStore {
  private shown: LiveRun;
  private state: RunState;
  private scheduled = false;
  private readonly listeners = new Set<() => void>();
  private readonly runId: string;

  constructor(runId: string, question: string) {
    this.runId = runId;
    this.state = emptyRun(runId, question);
    this.shown = { state: this.state, isConnected: true, failure: undefined };
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
  readonly read = (): LiveRun => this.shown;

  start(): () => void {
    const stop = new AbortController();
    follow(
      {
        runId: this.runId,
        cursor: () => cursorOf(this.state),
        onEvent: (event) => {
          this.state = applyEvent(this.state, event);
          this.schedule();
        },
        onConnected: (isConnected) => this.show({ isConnected }),
      },
      stop.signal,
    ).then(
      () => this.show({ isConnected: true }),
      (failure: unknown) => {
        if (!stop.signal.aborted) this.show({ failure: failure as Error });
      },
    );
    return () => stop.abort();
  }

  private schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    const paint = () => {
      this.scheduled = false;
      this.show({});
    };
    // A hidden tab gets no frames.
    if (document.hidden) setTimeout(paint, 100);
    else requestAnimationFrame(paint);
  }

  private show(change: Partial<LiveRun>): void {
    this.shown = { ...this.shown, ...change, state: this.state };
    for (const listener of this.listeners) listener();
  }
}
