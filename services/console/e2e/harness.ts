/** Two gateways behind REST with a long run and a long conversation in their log: tests/integration/console/harness.py. */
import { spawn, type ChildProcessWithoutNullStreams } from "node:child_process";
import { createInterface } from "node:readline";
import { join, resolve } from "node:path";

import { test as base } from "./page";

const ROOT = resolve(import.meta.dirname, "../../..");

export interface Harness {
  rest_url: string;
  long_run: string;
  conversation: string;
  /** A question whose answer is held in the middle until it is released. */
  held: string;
  answer: string;
  /** Gives an order, and waits until it is carried out. */
  order: (what: "kill" | "release" | "hold" | "go on") => Promise<void>;
}

async function running(program: ChildProcessWithoutNullStreams): Promise<Harness> {
  const lines = createInterface({ input: program.stdout })[Symbol.asyncIterator]();
  let errors = "";
  program.stderr.on("data", (piece: Buffer) => (errors = (errors + piece.toString()).slice(-4000)));
  const next = async () => {
    const { value, done } = await lines.next();
    if (done) throw new Error(`The harness has ended:\n${errors}`);
    return JSON.parse(value as string) as Omit<Harness, "order">;
  };
  return {
    ...(await next()),
    order: async (what) => {
      program.stdin.write(`${what}\n`);
      await next();
    },
  };
}

/** Tests whose pages come from the harness, which all tests of a worker share. */
export const test = base.extend<object, { harness: Harness }>({
  harness: [
    // eslint-disable-next-line no-empty-pattern -- Playwright reads the pattern to see what is needed
    async ({}, provide) => {
      const program = spawn(join(ROOT, ".venv/bin/python"), ["tests/integration/console/harness.py"], {
        cwd: ROOT,
        env: { ...process.env, PYTHONPATH: join(ROOT, "services/gateway/tests") },
      });
      const exited = new Promise((done) => program.once("exit", done));
      try {
        await provide(await running(program));
      } finally {
        program.stdin.end();
        await exited;
      }
    },
    { scope: "worker", timeout: 300_000 },
  ],
  target: async ({ harness }, provide) => provide(harness.rest_url),
});
