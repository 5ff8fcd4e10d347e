import { defineConfig } from "@playwright/test";

// `chromium` is Debian's: browsers that Playwright would download are not used.
export default defineConfig({
  testDir: "e2e",
  testMatch: process.env["BOS_CONSOLE_PICTURES"]
    ? "pictures.ts"
    : process.env["BOS_CONSOLE_BENCH"]
      ? "bench.ts"
      : "**/*.spec.ts",
  globalSetup: "./e2e/standalone.ts",
  workers: 1,
  retries: 0,
  timeout: 300_000,
  expect: { timeout: 60_000 },
  reporter: "list",
  use: {
    launchOptions: {
      executablePath: process.env["BOS_CHROMIUM"] ?? "/usr/bin/chromium",
      // Chromium's own sandbox cannot start for root, as in CI; the pages are ours.
      args: process.getuid?.() === 0 ? ["--no-sandbox"] : [],
    },
    locale: "en-GB",
    timezoneId: "Asia/Kolkata",
    viewport: { width: 1280, height: 850 },
    actionTimeout: 60_000,
    trace: "retain-on-failure",
  },
});
