import { ask, expect, test } from "./page";

const issuer = process.env["BOS_CONSOLE_ISSUER"] ?? "";

test.use({ elsewhere: issuer });

test("an OpenID provider signs in, and the account is made on the way", async ({ page, context }) => {
  // The provider's own pages ask for fonts of another host, which is not there.
  await context.route(
    (url) => url.hostname !== "127.0.0.1",
    (route) => route.abort(),
  );
  await page.goto("/");
  await page.getByRole("button", { name: "Sign in with Example" }).click();
  await page.waitForURL(`${issuer}/**`);
  const name = `grace-${String(Date.now())}`;
  await page.locator("input[name=login]").fill(name);
  await page.locator("input[name=password]").fill("anything");
  await page.locator("button[type=submit]").click();
  await page.getByRole("button", { name: "Continue" }).click();
  await expect(page.getByRole("heading", { name: "What would you like to know?" })).toBeVisible();
  expect(new URL(page.url()).search).toBe("");
  await expect(page.getByText(name)).toBeVisible();
  await ask(page, "How many days are there between 17 January 2026 and 15 June 2026?");
  await expect(page.getByRole("region", { name: "Answer" })).toContainText("149");
  await page.getByRole("button", { name: "Menu" }).click();
  await page.getByRole("menuitem", { name: "Sign out" }).click();
  await expect(page.getByRole("button", { name: "Sign in with Example" })).toBeVisible();
});
