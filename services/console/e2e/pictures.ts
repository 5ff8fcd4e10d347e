/** Pictures of docs/console.md; `make console-pictures` takes them anew. */
import { join, resolve } from "node:path";

import { ask, expect, MAIL, REVENUE, signIn, test } from "./page";
import { companyDocument, CONTRACT, POLICY, sample } from "./samples";

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

test("documents, one of them, memory, verified queries and files", async ({ page }) => {
  const [contract, policy] = [companyDocument(CONTRACT), companyDocument(POLICY)];
  const damaged = sample("damaged.pdf", "%PDF-1.7\nnothing");
  await page.goto("/documents");
  await page.getByLabel("Upload documents").last().setInputFiles([contract, policy, damaged]);
  const list = page.getByRole("region", { name: "Documents" });
  await expect(list.getByRole("listitem").filter({ hasText: "Ready" })).toHaveCount(2);
  await expect(list).toContainText("damaged or cut off");
  await page.screenshot({ path: file("documents") });
  await list.getByRole("link", { name: CONTRACT }).click();
  await expect(page.getByRole("region", { name: "Passages" }).locator("[data-chunk]").first()).toBeVisible();
  await page.screenshot({ path: file("document") });

  await page.goto("/memory");
  for (const [field, value] of Object.entries({ "Your name": "Asha Rao", "Tone of answers": "formal" })) {
    await page.getByRole("button", { name: `Add: ${field}` }).click();
    await page.getByRole("textbox").fill(value);
    await page.getByRole("button", { name: "Save" }).click();
    await expect(page.getByText(value)).toBeVisible();
  }
  await page.screenshot({ path: file("memory") });

  await ask(page, REVENUE);
  await expect(page.locator("[data-run]")).toHaveAttribute("data-status", "RUN_STATUS_SUCCEEDED");
  await page.getByRole("link", { name: "Open run" }).click();
  await page.getByRole("button", { name: "Mark as verified" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Mark as verified" }).click();
  await expect(page.getByRole("button", { name: "Change or share" })).toBeVisible();
  await page.goto("/verified-queries");
  await expect(page.getByRole("button", { name: "Take back" })).toBeVisible();
  await page.screenshot({ path: file("verified") });

  await page.emulateMedia({ colorScheme: "dark" });
  await page.goto("/files");
  const csv = sample("late-deliveries.csv", "supplier,days\nNoyyal Valve Works,9\nKansai Hollow,3\n");
  await page.getByLabel("Upload files").last().setInputFiles([csv]);
  await page.getByRole("button", { name: "Clear list" }).click();
  await page.getByRole("button", { name: csv.name, exact: true }).click();
  await expect(page.getByRole("dialog").getByRole("row")).toHaveCount(3);
  await page.screenshot({ path: file("files") });
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

test("report", async ({ page }) => {
  await ask(page, "Give me a report on sales last year");
  await expect(page.locator("[data-run]")).toHaveAttribute("data-status", "RUN_STATUS_SUCCEEDED");
  await expect(page.locator("figure img")).toHaveCount(4);
  await page.getByRole("heading", { name: "Main findings" }).evaluate((heading) => heading.scrollIntoView());
  await page.screenshot({ path: file("report") });
});
