import { ask, expect, MAIL, REVENUE, signIn, test } from "./page";

const DAYS = "How many days are there between 17 January 2026 and 15 June 2026?";

test.beforeEach(({ context }) => signIn(context));

test("a question is asked again, and edited and asked again, in its conversation", async ({ page }) => {
  await ask(page, DAYS);
  const turns = page.locator("[data-run]");
  await expect(turns).toHaveAttribute("data-status", "RUN_STATUS_SUCCEEDED");
  await page.getByRole("button", { name: "Ask again", exact: true }).click();
  await expect(turns).toHaveCount(2);
  await expect(turns.last()).toHaveAttribute("data-status", "RUN_STATUS_SUCCEEDED");
  await expect(turns.last()).toContainText("149");

  await turns.last().getByRole("button", { name: "Edit and ask again" }).click();
  const box = page.getByLabel("Question", { exact: true });
  await expect(box).toBeFocused();
  await expect(box).toHaveValue(DAYS);
  await box.fill(REVENUE);
  await page.keyboard.press("Enter");
  await expect(turns).toHaveCount(3);
  await expect(turns.last()).toHaveAttribute("data-status", "RUN_STATUS_SUCCEEDED");
  await expect(turns.last()).toContainText("22.84 percent");
  await expect(turns.first()).toContainText("149");
});

test("answer and table are copied as text", async ({ page }) => {
  await ask(page, REVENUE);
  const turn = page.locator("[data-run]");
  await expect(turn).toHaveAttribute("data-status", "RUN_STATUS_SUCCEEDED");
  const box = page.getByLabel("Question", { exact: true });
  const copied = async () => {
    await box.fill("");
    await page.keyboard.press("ControlOrMeta+V"); // no page may read the clipboard by itself
    return box.inputValue();
  };
  await turn.getByRole("button", { name: "Copy answer" }).click();
  await expect(turn.getByRole("button", { name: "Copied" })).toBeVisible();
  expect(await copied()).toContain("22.84 percent");
  await turn.getByRole("button", { name: "Copy table" }).click();
  await expect.poll(copied).toContain("Ashwini Mechanical Erectors\t2718060.16");
  expect((await copied()).trimEnd().split(/\r?\n/)).toHaveLength(6);
});

test("a follow-up question of a report runs with one click", async ({ page }) => {
  await ask(page, "Give me a report on sales last year");
  const followUps = page.getByRole("region", { name: "Follow-up questions" });
  await expect(followUps.getByRole("button")).toHaveCount(2);
  const question = (await followUps.getByRole("button").first().textContent()) ?? "";
  await followUps.getByRole("button").first().click();
  await expect(page.locator("[data-run]")).toHaveCount(2);
  await expect(page.locator("[data-run]").last()).toContainText(question);
  await expect(page.locator("[data-run]").last()).not.toHaveAttribute("data-status", /EXECUTING|PLANNING/);
});

test("instructions in place of a decision send the proposal back, and nothing is approved", { tag: ["@O-04"] }, async ({ page }) => {
  await ask(page, MAIL);
  await page.getByRole("button", { name: "Ask for something else" }).click();
  await expect(page.getByRole("button", { name: "Send instructions" })).toBeDisabled();
  await page.getByLabel("Instructions").fill("Write the second week of August");
  await page.getByRole("button", { name: "Send instructions" }).click();
  const card = page.getByRole("article", { name: "Sent back with instructions" });
  await expect(card).toContainText("Write the second week of August");
  await expect(card.getByRole("button", { name: "Approve" })).toHaveCount(0);
  await expect(page.getByRole("article", { name: "Approved" })).toHaveCount(0);
  await page.goto("/operate/approvals");
  await page.getByLabel("State").selectOption("APPROVAL_STATUS_APPROVED");
  await expect(page.getByRole("table")).toContainText("Sent back with instructions");
});
