/** Pictures of docs/console.md; `make console-pictures` takes them anew. */
import { join, resolve } from "node:path";

import { ask, expect, MAIL, REVENUE, signIn, test } from "./page";

const DAYS = "How many days are there between 17 January 2026 and 15 June 2026?";
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

test("graph of a run, and two runs compared", async ({ page }) => {
  await ask(page, DAYS);
  const turns = page.locator("[data-run]");
  await expect(turns).toHaveAttribute("data-status", "RUN_STATUS_SUCCEEDED");
  await page.getByLabel("Question", { exact: true }).fill(REVENUE);
  await page.keyboard.press("Enter");
  await expect(turns).toHaveCount(2);
  await expect(turns.last()).toHaveAttribute("data-status", "RUN_STATUS_SUCCEEDED");
  await turns.last().getByRole("link", { name: "Open run" }).click();
  await page.getByRole("list", { name: "Graph" }).getByRole("link").last().click();
  await expect(page.locator("details[id^=step-] > summary").last()).toBeFocused();
  await page.screenshot({ path: file("step") });
  await page.getByRole("link", { name: "Compare" }).click();
  await page.getByRole("main").getByRole("link", { name: DAYS }).first().click();
  await expect(page.getByRole("region", { name: "Answer" }).locator("ins").first()).toBeVisible();
  await page.screenshot({ path: file("compare") });
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

test.describe("phone", () => {
  test.use({ viewport: { width: 390, height: 720 }, hasTouch: true, isMobile: true });
  test("answer", async ({ page }) => {
    await ask(page, REVENUE);
    await expect(page.locator("[data-run]")).toHaveAttribute("data-status", "RUN_STATUS_SUCCEEDED");
    await page.getByRole("heading", { name: REVENUE }).scrollIntoViewIfNeeded();
    await page.screenshot({ path: file("phone") });
  });
});
