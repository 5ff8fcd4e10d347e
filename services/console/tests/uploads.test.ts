import { describe, expect, test, vi } from "vitest";

import { ApiError } from "../src/api/errors";
import { Uploads } from "../src/uploads/queue";
import { UnreadableFile } from "../src/uploads/sending";

interface Call {
  file: File;
  onSent: (share: number) => void;
  signal: AbortSignal;
  resolve: (result: string) => void;
  reject: (error: Error) => void;
}

function opened() {
  const calls: Call[] = [];
  const uploads = new Uploads<string>(
    "/v1/documents",
    (_path, file, onSent, signal) =>
      new Promise((resolve, reject) => calls.push({ file, onSent, signal, resolve, reject })),
  );
  const states = () => uploads.read().map(({ state }) => state);
  return { uploads, calls, states };
}

const files = (...names: string[]) => names.map((name) => new File(["x"], name));
const settled = () => new Promise((done) => setTimeout(done));
const refused = (status: number, reason: string, retryAfterS?: number) =>
  new ApiError(status, "no", reason, retryAfterS);

describe("uploads", () => {
  test("three are sent at once, and the next one follows", async () => {
    const { uploads, calls, states } = opened();
    uploads.add(files("a", "b", "c", "d", "e"));
    expect(states()).toEqual(["sending", "sending", "sending", "waiting", "waiting"]);
    calls[1]?.resolve("stored");
    await settled();
    expect(states()).toEqual(["sending", "done", "sending", "sending", "waiting"]);
    expect(uploads.read()[1]?.result).toBe("stored");
  });

  test("progress is reported until everything was sent, and then that it is being stored", () => {
    const { uploads, calls, states } = opened();
    uploads.add(files("a"));
    calls[0]?.onSent(0.5);
    expect(uploads.read()[0]).toMatchObject({ sent: 0.5, state: "sending" });
    calls[0]?.onSent(1);
    expect(states()).toEqual(["storing"]);
  });

  test.each([
    ["no connection", new TypeError("no connection"), 1000],
    ["a restarting server", refused(503, ""), 1000],
    ["too many at once, and when to come again", refused(429, "UPLOAD_LIMIT", 7), 7000],
  ])("%s: it is sent again by itself", async (_name, error, wait) => {
    vi.useFakeTimers();
    try {
      const { uploads, calls, states } = opened();
      uploads.add(files("a"));
      calls[0]?.reject(error);
      await vi.advanceTimersByTimeAsync(wait - 1);
      expect(states()).toEqual(["interrupted"]);
      await vi.advanceTimersByTimeAsync(1);
      expect(calls.length).toBe(2);
      calls[1]?.resolve("stored");
      await vi.advanceTimersByTimeAsync(0);
      expect(states()).toEqual(["done"]);
    } finally {
      vi.useRealTimers();
    }
  });

  test.each([
    ["a full account", refused(429, "DOCUMENT_COUNT_LIMIT", 60)],
    ["a file that is too large", refused(413, "BODY_TOO_LARGE")],
    ["a file that is gone here", new UnreadableFile("a")],
  ])("%s: it waits for its user, who may send it again", async (_name, error) => {
    const { uploads, calls, states } = opened();
    uploads.add(files("a"));
    calls[0]?.reject(error);
    await settled();
    expect(states()).toEqual(["failed"]);
    expect(uploads.read()[0]?.failure).toBe(error);
    uploads.again(1);
    expect(states()).toEqual(["sending"]);
  });

  test("after eight attempts in a row it is left to its user", async () => {
    vi.useFakeTimers();
    try {
      const { uploads, calls, states } = opened();
      uploads.add(files("a"));
      for (let attempt = 0; attempt < 8; attempt += 1) {
        calls[attempt]?.reject(new TypeError("no connection"));
        await vi.advanceTimersByTimeAsync(30_000);
      }
      expect([states(), calls.length]).toEqual([["failed"], 8]);
    } finally {
      vi.useRealTimers();
    }
  });

  test("with the connection back, what was interrupted is sent at once", async () => {
    const { uploads, calls, states } = opened();
    uploads.add(files("a"));
    calls[0]?.reject(new TypeError("no connection"));
    await settled();
    uploads.online();
    expect(states()).toEqual(["sending"]);
    expect(calls.length).toBe(2);
  });

  test("a cancelled one is aborted, makes room, and its late answer counts for nothing", async () => {
    const { uploads, calls, states } = opened();
    uploads.add(files("a", "b", "c", "d"));
    uploads.cancel(1);
    expect(calls[0]?.signal.aborted).toBe(true);
    calls[0]?.resolve("stored");
    await settled();
    expect(states()).toEqual(["cancelled", "sending", "sending", "sending"]);
  });

  test("clearing keeps what is under way, and signing out keeps nothing", async () => {
    const { uploads, calls, states } = opened();
    uploads.add(files("a", "b"));
    calls[0]?.resolve("stored");
    await settled();
    uploads.clear();
    expect(states()).toEqual(["sending"]);
    uploads.forget();
    expect(states()).toEqual([]);
    expect(calls[1]?.signal.aborted).toBe(true);
  });
});
