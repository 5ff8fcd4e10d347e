import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { promisify } from "node:util";

import { ask, expect, expectAccessible, MAIL, REVENUE, signIn, test } from "./page";
import { standalone } from "./standalone";

const BOS = resolve(import.meta.dirname, "../../../.venv/bin/bos");

test.beforeEach(({ context }) => signIn(context));

test("the question of the README is answered with steps, table and sources", async ({ page }) => {
  await ask(page, REVENUE);
  const turn = page.getByRole("article").first();
  await expect(turn).toHaveAttribute("data-status", "RUN_STATUS_SUCCEEDED");
  await expect(turn.getByRole("region", { name: "Answer" })).toContainText("22.84 percent");
  await expect(turn.getByRole("table").getByRole("row")).toHaveCount(6);
  await expect(turn.getByRole("region", { name: "Sources" })).toContainText("invoices");
  await turn.getByRole("button", { name: "2 steps" }).click();
  await expect(turn.getByRole("region", { name: "Steps" }).getByRole("listitem")).toHaveText([
    /sql.*five customers.*succeeded/,
    /computation.*share.*succeeded/,
  ]);

  await turn.getByRole("button", { name: "Sort by revenue", exact: true }).click();
  await expect(turn.getByRole("row").nth(1)).toContainText("Ashwini");
  const saving = page.waitForEvent("download");
  await turn.getByRole("button", { name: "CSV" }).click();
  const csv = readFileSync(await (await saving).path(), "utf8");
  expect(csv.split("\r\n")[1]).toBe("Ashwini Mechanical Erectors,2718060.16,147141358.20");

  const row = page.getByRole("region", { name: "Conversations" }).getByRole("listitem").first();
  await expect(row).toContainText("Which five customers");
  await expectAccessible(page);

  await page.reload();
  await expect(page.getByRole("region", { name: "Answer" })).toContainText("22.84 percent");
  await turn.getByRole("button", { name: "Not helpful" }).click();
  await page.getByLabel("It took too long").check();
  await page.getByRole("button", { name: "Send" }).click();
  await expect(turn.getByRole("button", { name: "Not helpful" })).toHaveAttribute("aria-pressed", "true");
  await page.reload();
  await expect(turn.getByRole("button", { name: "Not helpful" })).toHaveAttribute("aria-pressed", "true");
});

test("a reload in the middle resumes, and a decision in a second tab shows in the first", { tag: ["@O-04"] }, async ({
  page,
  context,
}) => {
  await ask(page, MAIL);
  await expect(page.getByRole("button", { name: "Approve" })).toBeVisible();
  await page.reload();
  const card = page.getByRole("article", { name: "Your approval is needed" });
  await expect(card).toContainText("purchase@krishna-delta.example");
  await expect(card).toContainText(/Denied by itself in 1:\d\d/);
  await expect(card.getByRole("button", { name: "Approve" })).not.toBeFocused();
  await expectAccessible(page);

  const second = await context.newPage();
  await second.goto("/approvals");
  await expect(second.getByRole("link", { name: /1 approval is waiting/ }).first()).toBeVisible();
  await expectAccessible(second);
  await second.getByRole("button", { name: "Approve" }).click();

  await expect(page.getByRole("article", { name: "Approved" })).toBeVisible();
  await expect(page.locator("[data-run]")).toHaveAttribute("data-status", "RUN_STATUS_SUCCEEDED");
  await expect(second.getByRole("article", { name: "Approved" })).toBeVisible();
  await expect(second.getByRole("link", { name: /is waiting/ })).toHaveCount(0);
});

test("a decision by the command line shows at once in the open card, and in the open graph of the run", async ({
  page,
  context,
}) => {
  await ask(page, MAIL);
  const card = page.locator("[data-approval]");
  await expect(card.getByRole("button", { name: "Approve" })).toBeVisible();
  const approvalId = (await card.getAttribute("data-approval")) ?? "";
  const run = await context.newPage();
  await run.goto(`/runs/${(await page.locator("[data-run]").getAttribute("data-run")) ?? ""}`);
  const step = run.getByRole("list", { name: "Graph" }).getByRole("link").last();
  await expect(step).toContainText("needs approval");

  const { target, api_key } = standalone();
  const { stdout } = await promisify(execFile)(BOS, ["--target", target, "approvals", "approve", approvalId], {
    env: { ...process.env, BOS_API_KEY: api_key },
  });
  expect(stdout).toContain("approved");
  for (const each of [page, run]) {
    await expect(each.getByRole("article", { name: "Approved" })).toBeVisible();
    await expect(each.getByRole("button", { name: "Approve" })).toHaveCount(0);
  }
  await expect(page.locator("[data-run]")).toHaveAttribute("data-status", "RUN_STATUS_SUCCEEDED");
  await expect(step).toContainText("succeeded");
});

test("a lost connection is made again, and nothing is lost or doubled", async ({ page, wire }) => {
  await ask(page, MAIL);
  await expect(page.getByRole("button", { name: "Deny" })).toBeVisible();
  const approvalId = (await page.locator("[data-approval]").getAttribute("data-approval")) ?? "";
  wire.cut();
  await expect(page.getByText("Connection lost.")).toBeVisible();
  // The run goes on meanwhile: it is denied elsewhere, and it ends.
  const { rest_url, api_key } = standalone();
  const headers = { Authorization: `Bearer ${api_key}`, "Content-Type": "application/json" };
  const answer = await fetch(`${rest_url}/v1/approvals/${approvalId}:respond`, {
    method: "POST",
    headers,
    body: JSON.stringify({ decision: "APPROVAL_DECISION_DENY" }),
  });
  expect(answer.status).toBe(200);
  await expect(page.getByRole("button", { name: "Deny" })).toBeVisible();
  wire.mend();
  await expect(page.getByRole("article", { name: "Denied" })).toHaveCount(1);
  await expect(page.getByText("Connection lost.")).toHaveCount(0);
  await expect(page.locator("[data-run]")).not.toHaveAttribute("data-status", /EXECUTING|WAITING/);
  await expect(page.locator("[data-run]")).toHaveCount(1);
});

test("the keyboard alone asks, opens the inbox, and approves", async ({ page }) => {
  await page.goto("/approvals");
  await expect(page.getByRole("heading", { name: "Approvals", exact: true })).toBeVisible();
  await page.keyboard.press("?");
  await expect(page.getByRole("dialog", { name: "Keyboard shortcuts" })).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(page.getByRole("dialog")).toHaveCount(0);
  await page.keyboard.press("n");
  await expect(page.getByLabel("Question", { exact: true })).toBeFocused();
  await page.keyboard.type(MAIL);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("button", { name: "Approve" })).toBeVisible();
  await page.getByLabel("Question", { exact: true }).blur();
  await page.keyboard.press("i");
  await expect(page.getByRole("button", { name: "Approve" })).toBeVisible();
  await page.keyboard.press("a");
  await expect(page.getByRole("button", { name: "Approve" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("article", { name: "Approved" })).toBeVisible();
});

test("stopping a run ends it", async ({ page }) => {
  await ask(page, MAIL);
  await expect(page.getByRole("button", { name: "Approve" })).toBeVisible();
  await page.getByRole("button", { name: "Stop" }).click();
  await expect(page.locator("[data-run]")).toHaveAttribute("data-status", "RUN_STATUS_CANCELLED");
  await expect(page.getByRole("button", { name: "Approve" })).toHaveCount(0);
});

test("a run is shown step by step at an address of its own", async ({ page }) => {
  await ask(page, REVENUE);
  await expect(page.locator("[data-run]")).toHaveAttribute("data-status", "RUN_STATUS_SUCCEEDED");
  await page.getByRole("link", { name: "Open run" }).click();
  await expect(page.getByRole("region", { name: "Timeline" }).getByRole("listitem")).toHaveCount(2);
  await expect(page.getByRole("region", { name: "Events" })).toContainText("run_finished");
  await page.getByRole("button", { name: "SQL Server" }).click();
  await expect(page.getByRole("figure").first()).toContainText("SELECT TOP 5");
  await expectAccessible(page);
  await page.getByRole("link", { name: "Open conversation" }).click();
  await expect(page.getByRole("region", { name: "Answer" })).toContainText("22.84 percent");
});

test("conversations are searched, renamed and deleted", async ({ page }) => {
  await ask(page, "How many days are there between 17 January 2026 and 15 June 2026?");
  const list = page.getByRole("region", { name: "Conversations" });
  // The one that is open: others of the same question may stand above it until it is listed.
  const row = list.getByRole("listitem").filter({ has: page.locator("[aria-current=page]") });
  await row.getByRole("button").click();
  await page.getByRole("menuitem", { name: "Rename" }).click();
  const title = `Days ${String(Date.now())}`;
  await page.getByLabel("Title").fill(title);
  await page.getByRole("button", { name: "Save" }).click();
  await list.getByRole("searchbox").fill(title);
  await expect(list.getByRole("listitem")).toHaveText([title]);
  await list.getByRole("listitem").getByRole("button").click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await expect(list).toContainText("No conversation matches.");
  await expect(page).toHaveURL(/\/$/);
});
