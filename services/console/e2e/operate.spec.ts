/** Operation and administration, as an operator and administrator and as a user with neither role. */
import type { BrowserContext, Page } from "@playwright/test";

import { expectWalkable, tabTo } from "./keyboard";
import { ask, expect, expectAccessible, MAIL, signIn, test } from "./page";
import { standalone } from "./standalone";

const PASSWORD = "correct horse battery staple";
const QUESTION = "How many days are there between 17 January 2026 and 15 June 2026?";
const OPERATE = ["runs", "agents", "spend", "approvals", "ingestion", "storage"];
const ADMINISTER = ["users", "invitations", "keys", "audit"];
const PATHS = [
  "/v1/operator/runs",
  "/v1/operator/spend",
  "/v1/operator/storage",
  "/v1/operator/approvals",
  "/v1/operator/ingestion",
  "/v1/users",
  "/v1/invitations",
  "/v1/audit/identity/entries",
  "/v1/audit/gateway/entries",
];

async function register(context: BrowserContext, username: string, display = ""): Promise<void> {
  const made = await context.request.post("/v1/users", {
    headers: { "Bos-Browser": "1" },
    data: { username, password: PASSWORD, email: `${username}@example.com`, display_name: display },
  });
  expect(made.ok(), await made.text()).toBe(true);
}

/** Signs the browser in as a new user, who has no role but `user`. Returns the name. */
async function signInAsUser(context: BrowserContext, display = ""): Promise<string> {
  const username = `ordinary-${String(Date.now())}`;
  // The first account of an installation is an administrator's; this is never the first one.
  await register(context, `first-${username}`);
  await register(context, username, display);
  const answer = await context.request.post("/v1/browserSession:logIn", {
    headers: { "Bos-Browser": "1" },
    data: { username, password: PASSWORD },
  });
  expect(answer.ok(), await answer.text()).toBe(true);
  return username;
}

async function openMenu(page: Page): Promise<void> {
  await page.getByRole("button", { name: "Menu" }).last().click();
  await expect(page.getByRole("menuitem", { name: "Settings" })).toBeVisible();
}

test("who is no operator and no administrator sees no entry, denied pages, and gets nothing", async ({
  page,
  context,
}) => {
  await signInAsUser(context);
  await page.goto("/");
  await openMenu(page);
  await expect(page.getByRole("menuitem", { name: "Operate" })).toHaveCount(0);
  await expect(page.getByRole("menuitem", { name: "Administration" })).toHaveCount(0);
  for (const address of ["/operate/runs", "/administer/users"]) {
    await page.goto(address);
    await expect(page.getByRole("heading", { name: "This page is not for you" })).toBeVisible();
    await expect(page.getByRole("table")).toHaveCount(0);
  }
  await expectAccessible(page);
  for (const path of PATHS) {
    const answer = await context.request.get(path);
    expect(answer.status(), path).toBe(403);
  }
});

test("operators find runs, look into one without its content, and see all figures", { tag: ["@O-09"] }, async ({
  page,
  context,
}) => {
  await signIn(context);
  await ask(page, QUESTION);
  await expect(page.getByRole("region", { name: "Answer" })).toContainText("149");
  await openMenu(page);
  await page.getByRole("menuitem", { name: "Operate" }).click();
  await expect(page.getByRole("table")).toContainText("computation");
  const link = page.getByRole("link", { name: "Dashboard in Grafana" });
  const base = ((await (await context.request.get("/v1/browserSession")).json()) as Record<string, string>)[
    "dashboards_url"
  ];
  if (base) await expect(link).toHaveAttribute("href", `${base}/d/bos-runs`);
  else await expect(link).toHaveCount(0);
  await page.getByLabel("Agent", { exact: true }).fill("unknown");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { name: "Nothing matches." })).toBeVisible();
  await page.getByLabel("Agent", { exact: true }).fill("computation");
  await page.getByLabel("State").selectOption("RUN_STATUS_SUCCEEDED");
  await page.keyboard.press("Tab");
  await page.getByRole("button", { name: "Filter" }).click();
  await page.getByRole("table").getByRole("link").first().click();
  await expect(page).toHaveURL(/\/operate\/runs\//);
  await expect(page.getByRole("region", { name: "Steps" })).toContainText("computation");
  await expect(page.getByText("149")).toHaveCount(0);
  await expect(page.getByText(QUESTION)).toHaveCount(1); // in the list of own conversations alone
  await expectAccessible(page);
  for (const section of OPERATE) {
    await page.goto(`/operate/${section}`);
    await expect(page.getByRole("heading", { name: "Operate", level: 1 })).toBeVisible();
    await expect(page.getByRole("main").getByText("Loading …")).toHaveCount(0);
    await expect(page.getByRole("main").getByRole("alert")).toHaveCount(0);
    await expectAccessible(page);
  }
  await expect(page.getByRole("table")).toContainText("gateway.runs");
});

test("the keyboard alone walks through every page of operation, filters, turns pages, and ends a run", async ({
  page,
  context,
}) => {
  await signIn(context);
  await ask(page, MAIL);
  await expect(page.getByRole("button", { name: "Approve" })).toBeVisible();
  for (const section of OPERATE) {
    await page.goto(`/operate/${section}`);
    await expect(page.getByRole("heading", { name: "Operate", level: 1 })).toBeVisible();
    await expect(page.getByRole("main").getByText("Loading …")).toHaveCount(0);
    await expectWalkable(page);
  }

  await page.goto("/operate/runs");
  await expect(page.getByRole("table")).toBeVisible();
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter"); // skips to the content
  await tabTo(page, page.getByLabel("State"));
  await page.keyboard.type("Waiting for a");
  await tabTo(page, page.getByLabel("Agent", { exact: true }));
  await page.keyboard.press("Enter");
  await expect(page.getByRole("cell", { name: "Succeeded" })).toHaveCount(0);
  await tabTo(page, page.getByRole("table").getByRole("link").first());
  await page.keyboard.press("Enter");
  await expect(page).toHaveURL(/\/operate\/runs\/./);
  const cancel = page.getByRole("button", { name: "Cancel the run" });
  await page.keyboard.press("Shift+Tab");
  await tabTo(page, cancel);
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog");
  await expect(dialog.getByLabel("Reason")).toBeVisible();
  await page.keyboard.press("Escape");
  await expect(dialog).toHaveCount(0);
  await expect(cancel).toBeFocused();
  await page.keyboard.press("Enter");
  await tabTo(page, dialog.getByRole("button", { name: "Cancel the run" }));
  await page.keyboard.press("Enter");
  await expect(dialog).toHaveCount(0);
  await expect(page.getByText("Cancelled", { exact: true }).first()).toBeVisible();
});

test("administrators change roles and groups, invite, make a key that is shown once, and read the log", async ({
  page,
  context,
  browser,
  baseURL,
}) => {
  const other = await browser.newContext(baseURL ? { baseURL } : {});
  const hostile = "<img src=x onerror=alert(1)> </td><script>alert(2)</script>";
  const username = await signInAsUser(other, hostile);
  await signIn(context);
  await page.goto("/administer/users");
  await page.getByLabel("User name").fill(username);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("table")).toContainText(hostile);
  await page.getByRole("button", { name: `Edit ${username}` }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByRole("checkbox", { name: /^Operator/ }).check();
  await dialog.getByLabel("Groups").fill("sales, finance");
  await expectAccessible(page);
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect(dialog).toHaveCount(0);
  await expect(page.getByRole("table")).toContainText("User, Operator");
  await expect(page.getByRole("table")).toContainText("sales");

  await page.goto("/administer/invitations");
  await page.getByRole("button", { name: "Invite" }).click();
  await expect(dialog.getByText("This is shown once.")).toBeVisible();
  await dialog.getByRole("button", { name: "Done" }).click();
  await page.getByRole("table").getByRole("button", { name: "Revoke" }).first().click();
  await expect(page.getByRole("heading", { name: "No invitation can be used." })).toBeVisible();

  const service = `robot-${String(Date.now())}`;
  await page.goto("/administer/users");
  await page.getByRole("button", { name: "Add a service account" }).click();
  await dialog.getByLabel("Name of the service account").fill(service);
  await dialog.getByRole("button", { name: "Save" }).click();
  await expect(dialog).toHaveCount(0);
  await page.goto("/administer/keys");
  await page.getByLabel("Account", { exact: true }).selectOption({ label: service });
  await page.getByLabel("What the key is for").fill("\u202Enightly\u202C <b>report</b>");
  await page.getByRole("button", { name: "Make a key" }).click();
  // Names with invisible characters are refused, with the field.
  await expect(page.getByRole("alert")).toContainText("name");
  await page.getByLabel("What the key is for").fill("nightly <b>report</b>");
  await page.getByRole("button", { name: "Make a key" }).click();
  const secret = await page.locator("[data-secret]").innerText();
  expect(secret).toMatch(/^bosk_/);
  await dialog.getByRole("button", { name: "Done" }).click();
  await expect(page.getByText(secret)).toHaveCount(0);
  await expect(page.getByRole("table")).toContainText("nightly <b>report</b>");
  const asService = { headers: { Authorization: `Bearer ${secret}` } };
  expect((await other.request.get(`${standalone().rest_url}/v1/runs`, asService)).status()).toBe(200);
  await page.getByRole("button", { name: "Revoke nightly" }).click();
  await dialog.getByRole("button", { name: "Revoke" }).click();
  await expect(page.getByRole("heading", { name: "There is no key." })).toBeVisible();

  await page.goto("/administer/audit");
  await expect(page.getByRole("table")).toBeVisible();
  await expect(async () => {
    // Entries are sealed within seconds; filtering again reads the trail again.
    await page.getByRole("textbox", { name: "Action" }).fill("api_key.");
    await page.keyboard.press("Enter");
    await expect(page.getByRole("table")).toContainText("api_key.revoked", { timeout: 5000 });
  }).toPass({ timeout: 60_000 });
  await expect(page.getByRole("table")).not.toContainText("session.opened");
  expect(await page.content()).not.toContain(secret);
  for (const section of ADMINISTER) {
    await page.goto(`/administer/${section}`);
    await expect(page.getByRole("main").getByText("Loading …")).toHaveCount(0);
    await expectAccessible(page);
  }
  await other.close();
});

test("ten thousand rows are paged, hostile names in them stay literal", async ({ page, context }) => {
  await signIn(context);
  const row = (index: number) => ({
    run_id: `00000000-0000-4000-8000-${String(index).padStart(12, "0")}`,
    user_id: index % 2 ? "<script>alert(1)</script>" : "\u202Eevil\u202C\u200B".repeat(9),
    status: "RUN_STATUS_FAILED",
    create_time: "2026-06-15T09:30:00Z",
    agents: ["x".repeat(400)],
    error_type: "Other",
    tokens: "123456789",
    last_sequence: "1",
    revision: 0,
    steps: [],
  });
  await page.route("**/v1/operator/runs?*", async (route) => {
    const start = Number(new URL(route.request().url()).searchParams.get("page_token") ?? "0");
    const runs = Array.from({ length: 100 }, (_, index) => row(start + index));
    const next_page_token = start + 100 < 10_000 ? String(start + 100) : "";
    await route.fulfill({ json: { runs, next_page_token } });
  });
  await page.goto("/operate/runs");
  await expect(page.getByRole("row")).toHaveCount(101);
  await expect(page.getByText("<script>alert(1)</script>").first()).toBeVisible();
  await expect(page.getByText("\\u{202E}").first()).toBeVisible();
  await expectAccessible(page);
  const next = page.getByRole("button", { name: "Next page" });
  await page.keyboard.press("Shift+Tab"); // from the top of the page to its end
  await expect(next).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.getByText("Page 2", { exact: true })).toBeVisible();
  await expect(next).toHaveAttribute("aria-disabled", "false"); // the page is there
  await expect(next).toBeFocused();
  await expect(page.getByRole("row")).toHaveCount(101);
  await page.keyboard.press("Shift+Tab");
  await page.keyboard.press("Enter");
  await expect(page.getByText("Page 1", { exact: true })).toBeVisible();
  // At the first page, too, where it does nothing.
  await expect(page.getByRole("button", { name: "Previous page" })).toBeFocused();
});

test("a call that fails is said, and can be repeated", async ({ page, context }) => {
  await signIn(context);
  await page.route("**/v1/operator/storage", (route) =>
    route.fulfill({ status: 400, json: { error: { code: 400, message: "The store is away.", details: [] } } }),
  );
  await page.goto("/operate/storage");
  await expect(page.getByRole("alert")).toContainText("The store is away.");
  await page.unroute("**/v1/operator/storage");
  await page.getByRole("button", { name: "Try again" }).click();
  await expect(page.getByRole("table")).toContainText("gateway.runs");
});

test.describe("on a phone, dark", () => {
  test.use({ viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true, colorScheme: "dark" });

  test("pages fit, and wide tables scroll by themselves", async ({ page, context }) => {
    await signIn(context);
    for (const address of [...OPERATE.map((each) => `/operate/${each}`), "/administer/users", "/administer/audit"]) {
      await page.goto(address);
      await expect(page.getByRole("main").getByText("Loading …")).toHaveCount(0);
      await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
      const width = await page.evaluate(() => document.documentElement.scrollWidth);
      expect(width, address).toBeLessThanOrEqual(360);
      await expectAccessible(page);
    }
  });
});
