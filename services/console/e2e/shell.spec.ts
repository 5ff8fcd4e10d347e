import { ask, expect, expectAccessible, MAIL, signIn, test } from "./page";
import { standalone } from "./standalone";

test("signing in by key, and out", { tag: ["@A-21"] }, async ({ page }) => {
  await page.goto("/");
  await expectAccessible(page);
  await page.getByRole("button", { name: "Sign in with an API key" }).click();
  await page.getByLabel("API key").fill("not the key");
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await expect(page.getByRole("alert")).toBeVisible();
  await page.getByLabel("API key").fill(standalone().api_key);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await expect(page.getByRole("heading", { name: "What would you like to know?" })).toBeVisible();
  expect(await page.evaluate(() => document.cookie)).toBe("");
  const kept = await page.evaluate(() => JSON.stringify([{ ...localStorage }, { ...sessionStorage }]));
  expect(kept).not.toContain(standalone().api_key);
  await page.getByRole("button", { name: "Menu" }).click();
  await page.getByRole("menuitem", { name: "Sign out" }).click();
  await expect(page.getByLabel("User name")).toBeVisible();
});

test("registering an account signs it in, and it sees nothing of others", async ({ page }) => {
  await page.goto("/");
  await page.getByRole("button", { name: "Create an account" }).click();
  const name = `ada-${String(Date.now())}`;
  await page.getByLabel("User name").fill(name);
  await page.getByLabel("Email").fill(`${name}@example.com`);
  await page.getByLabel("Password").fill("correct horse battery staple");
  await page.getByRole("button", { name: "Create account" }).click();
  await expect(page.getByText("Your questions will be listed here.")).toBeVisible();
  await expect(page.getByText(name)).toBeVisible();
});

test("a session that ends under the page is renewed over it, and nothing typed is lost", async ({
  page,
  context,
}) => {
  await signIn(context);
  await page.goto("/");
  const question = page.getByLabel("Question", { exact: true });
  await question.fill("How many days are there between 17 January 2026 and 15 June 2026?");
  await context.clearCookies();
  await question.press("Enter");
  const dialog = page.getByRole("dialog", { name: "Sign in" });
  await expect(dialog).toContainText("Your session has ended");
  await expectAccessible(page);
  await dialog.getByRole("button", { name: "Sign in with an API key" }).click();
  await dialog.getByLabel("API key").fill(standalone().api_key);
  await dialog.getByRole("button", { name: "Sign in", exact: true }).click();
  await expect(dialog).toHaveCount(0);
  await expect(page.getByRole("region", { name: "Answer" })).toContainText("149");
});

for (const theme of ["Light", "Dark", "Green bank"]) {
  test(`the theme ${theme} is chosen, kept and accessible`, { tag: ["@O-08"] }, async ({ page, context }) => {
    await signIn(context);
    await page.goto("/");
    await page.getByRole("button", { name: "Menu" }).click();
    await page.getByRole("menuitem", { name: `Theme: ${theme}` }).click();
    await page.reload();
    const applied = { Light: "light", Dark: "dark", "Green bank": "bank" }[theme];
    await expect(page.locator("html")).toHaveAttribute("data-theme", applied ?? "");
    await expect(page.getByLabel("Question", { exact: true })).toBeVisible();
    await expectAccessible(page);
  });
}

test.describe("on a phone", () => {
  test.use({ viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true });

  test("an approval is reached and given with one thumb", async ({ page, context }) => {
    await signIn(context);
    await ask(page, MAIL);
    await expect(page.getByRole("button", { name: "Approve" })).toBeVisible();
    await page.getByRole("link", { name: /approval is waiting/ }).first().tap();
    const approve = page.getByRole("button", { name: "Approve" });
    await expect(approve).toBeVisible();
    await expectAccessible(page);
    const box = await approve.boundingBox();
    expect(box?.height).toBeGreaterThanOrEqual(44);
    const width = await page.evaluate(() => document.documentElement.scrollWidth);
    expect(width).toBeLessThanOrEqual(360);
    await approve.tap();
    await expect(page.getByRole("article", { name: "Approved" })).toBeVisible();
    await page.getByRole("button", { name: "Menu" }).first().tap();
    await page.getByRole("link", { name: "New question" }).tap();
    await expect(page.getByRole("heading", { name: "What would you like to know?" })).toBeVisible();
  });
});

test("another user who signs in over an ended session begins anew", async ({ page, context }) => {
  await signIn(context);
  await ask(page, "How many days are there between 17 January 2026 and 15 June 2026?");
  await expect(page.getByRole("region", { name: "Answer" })).toContainText("149");
  await context.clearCookies();
  const dialog = page.getByRole("dialog", { name: "Sign in" });
  await dialog.getByRole("button", { name: "Create an account" }).click();
  const name = `eve-${String(Date.now())}`;
  await dialog.getByLabel("User name").fill(name);
  await dialog.getByLabel("Email").fill(`${name}@example.com`);
  await dialog.getByLabel("Password").fill("correct horse battery staple");
  await dialog.getByRole("button", { name: "Create account" }).click();
  await expect(page.getByText("Your questions will be listed here.")).toBeVisible();
  await expect(page).toHaveURL(/\/$/);
  await expect(page.getByText("149")).toHaveCount(0);
});
