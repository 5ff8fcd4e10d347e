/** Pictures of docs/console.md; `make console-pictures` takes them anew. */
import { join, resolve } from "node:path";

import { ask, expect, MAIL, REVENUE, signIn, test } from "./page";

const FOLDER = resolve(import.meta.dirname, "../../../docs/images");
const file = (name: string) => join(FOLDER, `console-${name}.png`);

test.use({ viewport: { width: 1120, height: 860 } });
test.beforeEach(({ context }) => signIn(context));

test("answer and run", async ({ page }) => {
  await ask(page, REVENUE);
  await expect(page.locator("[data-run]")).toHaveAttribute("data-status", "RUN_STATUS_SUCCEEDED");
  await page.getByRole("button", { name: "2 steps" }).click();
  await page.getByRole("heading", { name: REVENUE }).scrollIntoViewIfNeeded();
  await page.screenshot({ path: file("answer") });
  await page.getByRole("link", { name: "Open run" }).click();
  await expect(page.getByRole("region", { name: "Timeline" })).toBeVisible();
  await page.screenshot({ path: file("run") });
});

test("approvals, dark", async ({ page }) => {
  await page.emulateMedia({ colorScheme: "dark" });
  await ask(page, MAIL);
  await expect(page.getByRole("button", { name: "Approve" })).toBeVisible();
  await page.goto("/approvals");
  await expect(page.getByRole("button", { name: "Approve" })).toBeVisible();
  await page.screenshot({ path: file("approvals") });
  await page.getByRole("button", { name: "Deny" }).click();
  await expect(page.getByRole("article", { name: "Denied" })).toBeVisible();
});

test("operation", async ({ page }) => {
  await ask(page, REVENUE);
  await expect(page.locator("[data-run]")).toHaveAttribute("data-status", "RUN_STATUS_SUCCEEDED");
  await page.goto("/operate/runs");
  await expect(page.getByRole("table")).toBeVisible();
  await page.screenshot({ path: file("operate") });
});

test("settings", async ({ page }) => {
  await page.goto("/settings");
  await page.getByLabel("Theme").selectOption("bank");
  await page.getByLabel("Numbers and dates").selectOption("de-CH");
  await page.screenshot({ path: file("settings") });
});

test.describe("phone", () => {
  test.use({ viewport: { width: 390, height: 720 }, hasTouch: true, isMobile: true });
  test("answer", async ({ page }) => {
    await ask(page, REVENUE);
    await expect(page.locator("[data-run]")).toHaveAttribute("data-status", "RUN_STATUS_SUCCEEDED");
    await page.getByRole("heading", { name: REVENUE }).scrollIntoViewIfNeeded();
    await page.screenshot({ path: file("phone") });
  });
});
