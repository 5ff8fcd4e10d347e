import { HOSTILE } from "./hostile";
import { expectInert } from "./inert";
import { expect, isFound, signIn, test } from "./page";

const ID = "hostile";

/** A stored run whose every text is hostile. */
function hostileRun(text: string, index: number) {
  const results = [
    {
      agent_id: text,
      agent_name: text,
      status: "AGENT_EXECUTION_STATUS_FAILED",
      answer: text,
      task_description: text,
      error: { type: text, message: text, details: {}, retryable: false },
      sources: [],
      performed_actions: [],
      charts: [],
      files: [{ name: text, digest: `${text}${String(index)}`, media_type: "text/html", size_bytes: "1", tainted: true }],
    },
  ];
  return {
    run_id: `${ID}-${String(index)}`,
    request_id: text,
    conversation_id: ID,
    question: text,
    status: index % 2 ? "RUN_STATUS_SUCCEEDED" : "RUN_STATUS_PARTIALLY_SUCCEEDED",
    create_time: "2026-06-15T12:00:00Z",
    last_sequence: "9",
    revision: 0,
    journal: [],
    response: {
      status: "RUN_STATUS_SUCCEEDED",
      answer: `${text} [1] [99]`,
      data: {
        columns: [{ name: text, type: "COLUMN_TYPE_STRING" }],
        rows: [[text], [{ [text]: text }]],
        row_count: "2",
        truncated: false,
      },
      agent_results: results,
      sources: [
        { type: "SOURCE_TYPE_WEB", title: text, uri: text, page: 0, section: text, excerpt: text, reference: text },
        { type: "SOURCE_TYPE_WEB", title: text, uri: `https://attacker.example/${String(index)}`, page: 1, section: "", excerpt: text, reference: "" },
      ],
      highlights: [text],
      followups: [text],
      charts: [],
      tainted: true,
      clarification: { questions: [{ question: text, options: [text, `${text}2`] }], assumptions: [text] },
    },
  };
}

function hostileApproval(text: string, index: number) {
  const argument = { label: text, type: text, lines: [text, text] };
  return {
    approval_id: `${ID}-${String(index)}`,
    run_id: ID,
    step_id: text,
    agent_id: text,
    agent_name: text,
    task_description: text,
    actions: [{ action_id: text, tool: text, digest: text, summary: text, tainted: true }],
    status: "APPROVAL_STATUS_PENDING",
    kind: "APPROVAL_KIND_OUTCOME_UNKNOWN",
    user_instructions: text,
    expire_time: "2099-01-01T00:00:00Z",
    display: { task: [text], actions: [{ title: text, tool: text, notes: [text], arguments: [argument] }] },
    origins: [
      {
        kind: "CONTENT_ORIGIN_KIND_STEP",
        step_id: text,
        agent_name: text,
        sources: [{ type: "SOURCE_TYPE_WEB", title: text, uri: text }],
      },
    ],
  };
}

test.beforeEach(({ context }) => signIn(context));

test(`${String(HOSTILE.length)} hostile texts in answers, cells, sources and questions are inert`, async ({
  page,
}) => {
  const runs = HOSTILE.map(hostileRun);
  await page.route(/\/v1\/runs\?/, (route) =>
    route.fulfill({ json: { runs, next_page_token: "" } }),
  );
  await page.route(/\/v1\/runs\/hostile-\d+$/, (route) => {
    const index = Number(/\d+$/.exec(route.request().url())?.[0]);
    return route.fulfill({ json: runs[index] });
  });
  await page.route(/\/v1\/conversations\?/, (route) =>
    route.fulfill({
      json: {
        conversations: HOSTILE.map((title, index) => ({ conversation_id: `x-${String(index)}`, title, tainted: true })),
        next_page_token: "",
      },
    }),
  );
  await page.goto(`/c/${ID}`);
  await expect(page.locator("[data-run]")).toHaveCount(HOSTILE.length);
  await expect(page.getByRole("region", { name: "Answer" })).toHaveCount(HOSTILE.length);
  await expect(page.getByRole("form", { name: "Bos needs to know" })).toBeVisible();
  await expectInert(page, ["https:"]);
  const citation = page.getByRole("button", { name: /^Source 1/ }).first();
  await citation.focus();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("dialog").first()).toBeVisible();
  const bidi = HOSTILE.findIndex((text) => text.includes("\u202E"));
  await expect(page.locator(`[data-run="${ID}-${String(bidi)}"] h2`)).toContainText("\\u{202E}");
});

test("hostile texts in approvals are literal, and invisible characters are seen", async ({ page }) => {
  const approvals = HOSTILE.map(hostileApproval);
  await page.route(/\/v1\/approvals\?/, (route) =>
    route.fulfill({ json: { approvals, next_page_token: "" } }),
  );
  await page.route(/\/v1\/approvals\/hostile-\d+$/, (route) => {
    const index = Number(/\d+$/.exec(route.request().url())?.[0]);
    return route.fulfill({ json: approvals[index] });
  });
  for (const text of ["<img src=x", "![pixel](", "\u202E"]) {
    const index = HOSTILE.findIndex((each) => each.includes(text));
    await page.goto(`/approvals/${ID}-${String(index)}`);
    const shown = text === "\u202E" ? "invoice\\u{202E}fdp.exe" : (HOSTILE[index] ?? "");
    await expect(page.locator("article pre")).toContainText(shown);
    expect(await page.evaluate(() => "pwned" in globalThis)).toBe(false);
    expect(await page.locator("article :is(a, img, script)").count()).toBe(0);
  }
});

test("a table of 10,000 rows and 50 columns draws only what is in view", async ({ page }) => {
  const columns = Array.from({ length: 50 }, (_, at) => ({
    name: `column_${String(at)}`,
    type: at % 2 ? "COLUMN_TYPE_DECIMAL" : "COLUMN_TYPE_STRING",
  }));
  const rows = Array.from({ length: 10_000 }, (_, at) =>
    columns.map((_column, column) => (column % 2 ? String(10_000 - at) : `row ${String(at)}`)),
  );
  const run = hostileRun("A large table", 1);
  run.response.data = { columns, rows: rows as never, row_count: "10000", truncated: false };
  await page.route(/\/v1\/runs\?/, (route) => route.fulfill({ json: { runs: [run], next_page_token: "" } }));
  await page.route(/\/v1\/runs\/hostile-1$/, (route) => route.fulfill({ json: run }));
  await page.goto(`/c/${ID}`);
  const table = page.getByRole("table");
  await expect(table).toHaveAttribute("aria-rowcount", "10001");
  expect(await table.getByRole("row").count()).toBeLessThan(60);
  await table.evaluate((element) => (element.scrollTop = element.scrollHeight));
  await expect(table).toContainText("row 9999");
  await page.getByRole("button", { name: "Sort by column_1", exact: true }).click();
  await table.evaluate((element) => (element.scrollTop = 0));
  await expect(table.getByRole("row").nth(1)).toContainText("row 9999");
  // So many cells are never drawn at once; a table of fewer is, so that the browser's own search finds all of it.
  await expect(page.getByRole("button", { name: "Draw all rows" })).toHaveCount(0);
  run.response.data = { columns: columns.slice(0, 5), rows: rows.slice(0, 400) as never, row_count: "400", truncated: false };
  await page.reload();
  await expect(table).toHaveAttribute("aria-rowcount", "401");
  const found = () => isFound(page, "row 333");
  expect(await found()).toBe(false);
  await page.getByRole("button", { name: "Draw all rows" }).click();
  await expect(table.getByRole("row")).toHaveCount(401);
  await expect.poll(found).toBe(true);
  await page.getByRole("button", { name: "Draw rows in view" }).click();
  await expect(table.getByRole("row")).not.toHaveCount(401);
});
