/**
 * A real standalone for the tests: all services, the sample company, the scripted model, and beside
 * it an OpenID provider.
 *
 * `BOS_CONSOLE_DATA_DIR` names the data folder of one that runs already, for work on the tests.
 */
import { spawn } from "node:child_process";
import { mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";

import { startIssuer } from "./issuer";

const ROOT = resolve(import.meta.dirname, "../../..");
const START_MS = 300_000;

export interface Standalone {
  target: string;
  rest_url: string;
  api_key: string;
}

/** Address and key of the standalone that the tests run against. */
export function standalone(): Standalone {
  const folder = process.env["BOS_CONSOLE_DATA_DIR"] ?? "";
  return JSON.parse(readFileSync(join(folder, "standalone.json"), "utf8")) as Standalone;
}

export default async function setUp(): Promise<(() => Promise<void>) | undefined> {
  if (process.env["BOS_CONSOLE_DATA_DIR"]) return undefined;
  const home = mkdtempSync(join(tmpdir(), "bos-console-"));
  const folder = join(home, "data");
  process.env["BOS_CONSOLE_DATA_DIR"] = folder;
  const log = openSync(join(home, "log"), "w");
  const [issuer, stopIssuer] = await startIssuer(ROOT, home);
  process.env["BOS_CONSOLE_ISSUER"] = issuer;
  const program = spawn(join(ROOT, ".venv/bin/bos"), ["serve", "all"], {
    cwd: ROOT,
    stdio: ["ignore", log, log],
    env: {
      ...process.env,
      HOME: home,
      BOS_STANDALONE_DATA_DIR: folder,
      BOS_STANDALONE_DEMO_DOCUMENTS: "false",
      BOS_GATEWAY_MODELS: "scripted-large=Thorough, scripted-small",
      BOS_IDENTITY_OPENID_ISSUER: issuer,
      BOS_IDENTITY_OPENID_CLIENT_ID: "bos",
      BOS_IDENTITY_OPENID_NAME: "Example",
    },
  });
  const exited = new Promise<void>((done) => program.once("exit", () => done()));
  const stop = async () => {
    program.kill("SIGTERM");
    await exited;
    stopIssuer();
    rmSync(home, { recursive: true, force: true });
  };
  const until = Date.now() + START_MS;
  while (!/^REST: http/m.test(readFileSync(join(home, "log"), "utf8"))) {
    if (program.exitCode !== null || Date.now() > until) {
      const said = readFileSync(join(home, "log"), "utf8");
      await stop();
      throw new Error(`The standalone did not start:\n${said}`);
    }
    await new Promise((wait) => setTimeout(wait, 250));
  }
  return stop;
}
