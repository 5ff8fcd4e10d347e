import { ask, expect, expectAccessible, REVENUE, signIn, test } from "./page";

test("settings are kept, shape each question, and can be reset", { tag: ["@O-06", "@O-07"] }, async ({ page, context }) => {
  await signIn(context);
  await page.goto("/");
  await page.getByRole("button", { name: "Menu" }).click();
  await page.getByRole("menuitem", { name: "Settings" }).click();
  await expect(page.getByRole("heading", { name: "Settings" })).toBeVisible();
  const rows = page.getByLabel("Rows of a table, at most");
  await rows.fill("0");
  await expect(rows).toHaveAttribute("aria-invalid", "true");
  await expect(page.getByText("Enter a whole number from 1 to 100,000, or nothing.")).toBeVisible();
  await expectAccessible(page);
  await rows.fill("3");
  await page.getByLabel("Columns of a table, at most").fill("2");
  await page.getByLabel("Seconds that a question may take").fill("90");
  await page.getByLabel("Debugging").check();
  const model = page.getByLabel("Model", { exact: true });
  await expect(model).toHaveValue("");
  await model.selectOption("Thorough");
  await page.getByLabel("Numbers and dates").selectOption("de-DE");
  await expect(page.getByText(/^1\.234\.567 · /)).toBeVisible();
  await page.reload();
  await expect(rows).toHaveValue("3");
  await ask(page, REVENUE);
  await expect(page.locator("[data-run]")).toHaveAttribute("data-status", /SUCCEEDED/);
  // The server cut the table, the page writes its numbers as was set, and shows what the steps did.
  const table = page.getByRole("table", { name: "Result" });
  await expect(table).toHaveAttribute("aria-rowcount", "4");
  await expect(table.getByRole("columnheader")).toHaveCount(2);
  await expect(table).toContainText(/\d\.\d{3},\d\d/);
  const steps = page.getByRole("region", { name: "What each step did" });
  await steps.locator("summary").first().click();
  await expect(steps.getByText("SELECT").first()).toBeVisible();
  await expect(steps.getByRole("region", { name: "Sources" }).first()).toContainText("customers");
  // The question chose the model, which every call went to.
  await page.getByRole("link", { name: "Open run" }).click();
  await expect(page.getByRole("definition").filter({ hasText: /^scripted-large$/ })).toBeVisible();
  await expect(page.getByText(/^\d+ \(scripted-large\)$/)).toBeVisible();
  await page.goto("/settings");
  await expect(model).toHaveValue("scripted-large");
  await page.getByRole("button", { name: "Reset all settings" }).click();
  await expect(rows).toHaveValue("");
  await expect(model).toHaveValue("");
  await expect(page.getByLabel("Debugging")).not.toBeChecked();
});

test("a model that is no longer offered is not shown, and not asked for", async ({ page, context }) => {
  await signIn(context);
  await page.goto("/settings");
  const model = page.getByLabel("Model", { exact: true });
  await model.selectOption("scripted-small");
  await page.route("**/v1/agents", async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...((await response.json()) as object), models: [] } });
  });
  const listed = page.waitForResponse("**/v1/agents");
  await page.reload();
  await listed;
  await expect(page.getByLabel("Database")).toBeVisible();
  await expect(model).toHaveCount(0);
  const asked = page.waitForRequest((request) => request.method() === "POST" && request.url().endsWith("/v1/runs"));
  await ask(page, "How many days are there between 17 January 2026 and 15 June 2026?");
  expect((await asked).postDataJSON()).not.toHaveProperty("model");
  await expect(page.locator("[data-run]")).toHaveAttribute("data-status", "RUN_STATUS_SUCCEEDED");
});

test("a database that there is none of fails the step, which names those that there are", { tag: ["@O-07"] }, async ({
  page,
  context,
}) => {
  await signIn(context);
  await page.goto("/settings");
  await page.getByLabel("Database").fill("nowhere");
  await ask(page, REVENUE);
  await expect(page.locator("[data-run]")).toHaveAttribute("data-status", "RUN_STATUS_FAILED");
  await expect(page.getByText(/nowhere/).first()).toBeVisible();
});

test("German by a setting: words, language of the document, dates and numbers", async ({ page, context }) => {
  await signIn(context);
  await page.goto("/settings");
  await page.getByLabel("Language").selectOption("de");
  await expect(page.getByRole("heading", { name: "Einstellungen" })).toBeVisible();
  await expect(page.locator("html")).toHaveAttribute("lang", "de");
  await expect(page.getByText(/^1\.234\.567 · 15\.06\.2026/)).toBeVisible();
  await page.reload();
  await expect(page.getByRole("heading", { name: "Einstellungen" })).toBeVisible();
  await expectAccessible(page);
  await page.getByLabel("Sprache").selectOption("en");
  await expect(page.getByRole("heading", { name: "Settings" })).toBeVisible();
  await expect(page.locator("html")).toHaveAttribute("lang", "en");
});

test.describe("in a German browser on a phone", () => {
  test.use({ locale: "de-AT", viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true });

  test("the page is German from the first word on, and fits", async ({ page, context }) => {
    await page.goto("/");
    await expect(page.getByLabel("Benutzername")).toBeVisible();
    await expect(page.locator("html")).toHaveAttribute("lang", "de");
    await signIn(context);
    await page.goto("/settings");
    await expect(page.getByRole("heading", { name: "Einstellungen" })).toBeVisible();
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(width).toBeLessThanOrEqual(360);
  });
});
