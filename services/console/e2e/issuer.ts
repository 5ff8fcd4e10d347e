/** A real OpenID provider (`make openid-issuer`), by which the standalone of the tests signs people in. */
import { spawn } from "node:child_process";
import { copyFileSync, symlinkSync } from "node:fs";
import { createInterface } from "node:readline";
import { join } from "node:path";

/** Starts it in the folder; returns its URL and its end. */
export async function startIssuer(root: string, folder: string): Promise<[string, () => void]> {
  copyFileSync(join(root, "tests/integration/openid/issuer/server.mjs"), join(folder, "server.mjs"));
  symlinkSync(join(root, ".cache/openid-issuer/node_modules"), join(folder, "node_modules"));
  const program = spawn(process.execPath, [join(folder, "server.mjs")], {
    stdio: ["pipe", "pipe", "ignore"],
  });
  const { value, done } = await createInterface({ input: program.stdout })[Symbol.asyncIterator]().next();
  const url = done ? undefined : /^ISSUER (.+)$/.exec(value)?.[1];
  if (!url) throw new Error("The OpenID provider did not start; `make openid-issuer` installs it.");
  return [url, () => program.stdin.end()];
}
