/** A gateway with a name and a logo of its own, before the same services. */
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";

import { expect, expectAccessible, test as base } from "./page";
import { standalone } from "./standalone";
import { Wire } from "./wire";

const PROGRAM = resolve(import.meta.dirname, "../../../build/bos-rest");
const NAME = 'Ask <b>"Us"</b> & Co';
const LOGO =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 8 8"><rect width="8" height="8"/>' +
  "<script>document.title = 'run'</script></svg>";

const test = base.extend({
  // eslint-disable-next-line no-empty-pattern -- Playwright reads the pattern to see what is needed
  wire: async ({}, provide) => {
    const folder = mkdtempSync(join(tmpdir(), "bos-brand-"));
    writeFileSync(join(folder, "logo.svg"), LOGO);
    const program = spawn(PROGRAM, {
      stdio: ["pipe", "pipe", "inherit"],
      env: {
        BOS_REST_PORT: "0",
        BOS_REST_GATEWAY_TARGET: standalone().target,
        BOS_REST_BRAND_NAME: NAME,
        BOS_REST_BRAND_LOGO_FILE: join(folder, "logo.svg"),
        BOS_REST_STOP_WITH_STDIN: "true",
        BOS_LOG_LEVEL: "error",
      },
    });
    const exited = new Promise((done) => program.once("exit", done));
    const line = await new Promise<string>((done, fail) => {
      createInterface(program.stdout).once("line", done);
      program.once("exit", () => fail(new Error("bos-rest did not start")));
    });
    const { address } = JSON.parse(line) as { address: string };
    const wire = new Wire(`http://${address}`);
    await provide(wire);
    await wire.close();
    program.stdin.end();
    await exited;
    rmSync(folder, { recursive: true });
  },
});

test("pages have the name and logo of the installation, as text and as an image alone", { tag: ["@O-08"] }, async ({ page }) => {
  await page.goto("/");
  await expect(page).toHaveTitle(NAME);
  const heading = page.getByRole("heading", { level: 1 });
  await expect(heading).toHaveText(NAME);
  const logo = heading.locator("img");
  await expect(logo).toHaveAttribute("src", /\/logo$/);
  expect(await logo.evaluate((image: HTMLImageElement) => image.naturalWidth)).toBeGreaterThan(0);
  await expectAccessible(page);
  // Opened by itself it may do nothing, either.
  const opened = await page.request.get("/logo");
  expect(opened.headers()["content-security-policy"]).toContain("default-src 'none'");
});
