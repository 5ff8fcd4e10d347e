import { readFileSync } from "node:fs";

import type { Page } from "@playwright/test";

import { HOSTILE } from "./hostile";
import { expectInert } from "./inert";
import { ask, expect, expectAccessible, signIn, test } from "./page";
import { companyDocument, CONTRACT, PNG, POLICY, sample, type Sample } from "./samples";
import { standalone } from "./standalone";

test.beforeEach(({ context }) => signIn(context));

const row = (page: Page, name: string) =>
  page.getByRole("region", { name: "Documents" }).getByRole("listitem").filter({ hasText: name });

/** Drops files on the page, as from the desktop. */
async function drop(page: Page, files: Sample[]): Promise<void> {
  const given = files.map(({ name, buffer }) => ({ name, content: buffer.toString("base64") }));
  const transfer = await page.evaluateHandle((all) => {
    const made = new DataTransfer();
    for (const { name, content } of all) {
      const bytes = Uint8Array.from(atob(content), (character) => character.charCodeAt(0));
      made.items.add(new File([bytes], name));
    }
    return made;
  }, given);
  const target = page.getByRole("heading", { level: 1 });
  await target.dispatchEvent("dragenter", { dataTransfer: transfer });
  await expect(page.getByText("Drop files here")).toBeVisible();
  await target.dispatchEvent("drop", { dataTransfer: transfer });
}

test("a PDF and a DOCX are uploaded, read, cited and opened at the cited passage", async ({ page }) => {
  await page.goto("/documents");
  await expect(page.getByRole("searchbox", { name: "Search by name" })).toBeVisible();
  await drop(page, [companyDocument(CONTRACT)]);
  await page
    .getByLabel("Upload documents")
    .last()
    .setInputFiles([companyDocument(POLICY), sample("damaged.pdf", "%PDF-1.7\nnothing")]);
  const uploads = page.getByRole("region", { name: "Uploads" });
  await expect(uploads.getByRole("status")).toHaveText("3 of 3 uploaded");
  for (const name of [CONTRACT, POLICY]) await expect(row(page, name)).toContainText("Ready");
  await expect(row(page, CONTRACT)).toContainText(/contract · .*pages · \d+ passages/);
  await expect(row(page, "damaged.pdf")).toContainText("damaged or cut off");
  await expectAccessible(page);

  await page.getByRole("searchbox", { name: "Search by name" }).fill("noyyal");
  await expect(page.locator("[data-key]")).toHaveCount(1);
  await page.reload(); // the address says what the list is narrowed to
  await expect(page.locator("[data-key]")).toHaveCount(1);
  await page.getByRole("searchbox", { name: "Search by name" }).fill("");
  await page.getByLabel("State").selectOption("failed");
  await expect(page.locator("[data-key]")).toHaveText([/damaged\.pdf/]);

  await ask(
    page,
    "What lead time did we agree with Noyyal Valve Works, and when does a delivery of theirs count as late?",
  );
  const sources = page.getByRole("region", { name: "Sources" });
  await expect(sources).toContainText("The agreed lead time is 22 days");
  await sources.getByRole("link", { name: "Open in the document" }).first().click();
  const cited = page.getByRole("region", { name: "The cited passage" });
  await expect(cited.locator("[data-cited=true]")).toContainText("The agreed lead time is 22 days");
  await expect(cited.locator("[data-cited=true]")).toContainText("3. Delivery");
  await expect(cited.locator("[data-cited=true]")).toContainText(/page \d/);
  const passages = page.getByRole("region", { name: "Passages" });
  await expect(passages.locator("[data-chunk]").first()).toContainText("page 1");
  await expect(page.getByText("Only you, and the runs that you start")).toBeVisible();
  await expectAccessible(page);

  await ask(
    page,
    "According to the travel policy, which class may we book on long flights, and what does a hotel in Mumbai cost at most?",
  );
  await expect(page.getByRole("region", { name: "Answer" })).toContainText("premium economy");
  await expect(page.getByRole("region", { name: "Sources" })).toContainText(POLICY);
});

test("the keyboard alone opens, reads again and deletes a document", async ({ page }) => {
  await page.goto("/documents");
  await page.getByLabel("Upload documents").last().setInputFiles([sample("keys.txt", "Only keys.")]);
  await expect(row(page, "keys.txt")).toContainText("Ready");
  const actions = row(page, "keys.txt").getByRole("button", { name: "Actions for keys.txt" });
  await actions.focus();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("menuitem", { name: "Open" })).toBeFocused();
  await page.keyboard.press("ArrowDown");
  await expect(page.getByRole("menuitem", { name: "Read again" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(row(page, "keys.txt")).toContainText("Ready");
  await actions.focus();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("menuitem", { name: "Open" })).toBeFocused();
  await page.keyboard.press("End");
  await expect(page.getByRole("menuitem", { name: "Delete" })).toBeFocused();
  await page.keyboard.press("Enter");
  const dialog = page.getByRole("dialog", { name: "Delete this document?" });
  await expect(dialog).toContainText("keys.txt");
  await expectAccessible(page);
  await dialog.getByRole("button", { name: "Delete" }).focus();
  await page.keyboard.press("Enter");
  await expect(dialog).toHaveCount(0);
  await expect(row(page, "keys.txt")).toHaveCount(0);
  await page.reload();
  await expect(page.getByRole("searchbox", { name: "Search by name" })).toBeVisible();
  await expect(row(page, "keys.txt")).toHaveCount(0);
});

test("an upload survives a lost connection, and one that is cancelled is not stored", async ({ page, wire }) => {
  await page.goto("/documents");
  await expect(page.getByRole("searchbox", { name: "Search by name" })).toBeVisible();
  wire.cut();
  const name = `lost-${String(Date.now())}.txt`;
  const uploads = page.getByRole("region", { name: "Uploads" });
  await page.getByLabel("Upload documents").last().setInputFiles([sample(name, `Not lost: ${name}.`)]);
  await expect(uploads).toContainText("Connection lost. It is tried again by itself.");
  wire.mend();
  const again = uploads.getByRole("button", { name: "Try now" });
  await again.or(uploads.getByText("1 of 1 uploaded")).first().click();
  await expect(uploads.getByRole("status")).toHaveText("1 of 1 uploaded");
  await expect(row(page, name)).toContainText("Ready");

  const held: (() => void)[] = [];
  await page.route("**/v1/documents", (route) =>
    route.request().method() === "POST"
      ? new Promise<void>((done) => held.push(() => void route.abort().finally(done)))
      : route.continue(),
  );
  const five = Array.from({ length: 5 }, (_, at) => sample(`held-${String(at)}.txt`, `Held ${String(at)}.`));
  await page.getByLabel("Upload documents").last().setInputFiles(five);
  await expect.poll(() => held.length).toBe(3);
  await expect(uploads.locator("[data-state=waiting]")).toHaveCount(2);
  for (const { name: each } of five) {
    await uploads.getByRole("button", { name: `Cancel the upload of ${each}` }).click();
  }
  await expect(uploads.locator("[data-state=cancelled]")).toHaveCount(5);
  for (const release of held) release();
  await uploads.getByRole("button", { name: "Clear list" }).click();
  await expect(uploads).toHaveCount(0);
  await expect(row(page, "held-")).toHaveCount(0);
});

/** Documents as the API lists them, of which each has a hostile text wherever one is shown. */
function hostileDocuments(count: number) {
  return Array.from({ length: count }, (_, at) => {
    const text = (HOSTILE[at % HOSTILE.length] ?? "").slice(0, 300);
    return {
      document_id: `d-${String(at)}`,
      name: text.slice(0, 255),
      media_type: count > 1 ? "" : text,
      digest: count > 1 ? "" : text,
      size_bytes: "1",
      state: at % 2 ? "DOCUMENT_STATE_FAILED" : "DOCUMENT_STATE_READY",
      failure: { reason: text, message: text },
      description: count > 1 ? "" : text,
      document_type: text.slice(0, 64),
      topics: count > 1 ? [] : [text],
      document_date: "",
      page_count: 1,
      pages_without_text: [1],
      chunk_count: 1,
      notes: count > 1 ? [] : [text],
      create_time: "2026-06-15T12:00:00Z",
    };
  });
}

test("10,000 documents with hostile names draw only what is in view, to the last one", async ({ page }) => {
  const documents = hostileDocuments(10_000);
  await page.route(/\/v1\/documents\?/, (route) => {
    const query = new URL(route.request().url()).searchParams;
    if (query.has("states")) return route.fulfill({ json: { documents: [], next_page_token: "" } });
    const start = Number(query.get("page_token") ?? "");
    const end = start + Number(query.get("page_size"));
    const next_page_token = end < documents.length ? String(end) : "";
    return route.fulfill({ json: { documents: documents.slice(start, end), next_page_token } });
  });
  await page.goto("/documents");
  const list = page.getByRole("region", { name: "Documents" });
  await expect(list.getByRole("listitem").first()).toBeVisible();
  await expectInert(page);
  const last = page.locator('[data-key="d-9999"]');
  await expect(async () => {
    await list.evaluate((frame) => frame.scrollTo(0, frame.scrollHeight));
    await expect(last).toBeVisible({ timeout: 50 });
  }).toPass({ timeout: 120_000, intervals: [0] });
  expect(await list.getByRole("listitem").count()).toBeLessThan(60);
  await expectInert(page);
});

test("hostile passages, facts, verified queries and file names are literal and inert", async ({ page }) => {
  const [document] = hostileDocuments(1);
  const chunks = HOSTILE.map((text, at) => ({
    chunk_id: `c-${String(at)}`,
    document_id: "d-0",
    document_name: text,
    text,
    kind: "CHUNK_KIND_TABLE",
    ordinal: at,
    first_page: 1,
    last_page: 2,
    section_path: [text, text],
    topics: [text],
    recognised: true,
  }));
  await page.route(/\/v1\/documents\/d-0$/, (route) => route.fulfill({ json: document }));
  await page.route(/\/v1\/documents\/d-0\/chunks/, (route) =>
    route.fulfill({ json: { chunks, next_page_token: "" } }),
  );
  await page.route(/\/v1\/chunks\//, (route) =>
    route.fulfill({ json: { chunk: chunks[0], before: [], after: chunks.slice(1, 3) } }),
  );
  await page.goto("/passages/c-0");
  await expect(page).toHaveURL(/\/documents\/d-0\?passage=c-0/);
  await expect(page.locator("[data-cited=true]")).toContainText(HOSTILE[0] ?? "");
  await expectInert(page);

  const facts = HOSTILE.slice(0, 10).map((value) => ({
    field: "recent_projects",
    value,
    source: "FACT_SOURCE_QUESTION",
    run_id: value,
    learn_time: "2026-06-15T12:00:00Z",
    tainted: true,
  }));
  await page.route("**/v1/memory/facts", (route) => route.fulfill({ json: { facts } }));
  await page.goto("/memory");
  await expect(page.getByText("pwned = 1").first()).toBeVisible();
  await expectInert(page);

  const verified_queries = HOSTILE.map((text, at) => ({
    query_id: `q-${String(at)}`,
    question: text,
    query: { sql: text, database: text, dialect: text, default_schema: text, tables: [text] },
    group: text,
    run_id: text,
    step_id: text,
    corrected: true,
    own: at % 2 === 0,
    create_time: "2026-06-15T12:00:00Z",
  }));
  await page.route(/\/v1\/verified-queries\?/, (route) =>
    route.fulfill({ json: { verified_queries, next_page_token: "" } }),
  );
  await page.goto("/verified-queries");
  await expect(page.getByRole("list", { name: "Verified queries" }).getByRole("listitem")).toHaveCount(HOSTILE.length);
  await expectInert(page);
  await page.getByRole("button", { name: "Take back" }).first().click();
  await expect(page.getByRole("dialog")).toContainText(HOSTILE[0] ?? "");
  await page.getByRole("button", { name: "Cancel" }).click();

  const files = HOSTILE.map((name) => ({
    name,
    digest: name,
    size_bytes: "1",
    media_type: name,
    version: 2,
    origin: "FILE_ORIGIN_DOWNLOAD",
    tainted: true,
    run_id: name,
    versions: [],
  }));
  const usage = { files: 1, max_files: 2, size_bytes: "1", max_bytes: "2" };
  await page.route(/\/v1\/files\?/, (route) => route.fulfill({ json: { files, next_page_token: "", usage } }));
  await page.goto("/files");
  await expect(page.getByRole("region", { name: "Files" }).getByRole("listitem").first()).toBeVisible();
  await expectInert(page);
});

test("memory is seen with its origin, corrected, confirmed, exported and forgotten", async ({ page }) => {
  const { rest_url, api_key } = standalone();
  const stored = await fetch(`${rest_url}/v1/memory`, {
    method: "PUT",
    headers: { Authorization: `Bearer ${api_key}`, "Content-Type": "application/json" },
    body: JSON.stringify({
      critical: { user_name: "Asha", recent_projects: ["Mill", "Kiln"] },
      tainted: true,
    }),
  });
  expect(stored.status).toBe(200);
  await page.goto("/memory");
  const about = page.getByRole("region", { name: "About you" });
  await expect(about).toContainText(/Asha.*You wrote it/);
  await expectAccessible(page);

  await about.getByRole("button", { name: "Correct Asha" }).focus();
  await page.keyboard.press("Enter");
  await expect(about.getByRole("textbox")).toBeFocused();
  await page.keyboard.press("End");
  await page.keyboard.type(" Rao");
  await page.keyboard.press("Enter");
  await expect(about).toContainText("Asha Rao");
  await about.getByRole("button", { name: "Forget Mill" }).click();
  await expect(about.getByText("Mill", { exact: true })).toHaveCount(0);
  await page.getByRole("button", { name: "Add: Tone of answers" }).click();
  await page.getByRole("textbox").fill("formal");
  await page.getByRole("button", { name: "Save" }).click();
  await expect(page.getByRole("region", { name: "How you want answers" })).toContainText("formal");

  const saving = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export" }).click();
  const exported = JSON.parse(readFileSync(await (await saving).path(), "utf8")) as { facts: { value: string }[] };
  expect(exported.facts.map(({ value }) => value)).toEqual(["Asha Rao", "Kiln", "formal"]);

  await page.getByRole("button", { name: "Forget everything" }).click();
  const dialog = page.getByRole("dialog", { name: "Forget everything about you?" });
  await expectAccessible(page);
  await dialog.getByRole("button", { name: "Forget everything" }).click();
  await expect(page.getByText("Nothing is remembered about you yet.")).toBeVisible();
});

test("a fact of a question leads to its run, and is confirmed by its user", async ({ page }) => {
  const fact = { field: "company_name", value: "Kaveri", source: "FACT_SOURCE_QUESTION", run_id: "run-1" };
  const memory = { critical: { user_name: "", company_name: "Kaveri", job_title: "", recent_projects: [] } };
  let isTainted = true;
  await page.route("**/v1/memory/facts", (route) =>
    route.fulfill({ json: { facts: [{ ...fact, learn_time: "2026-06-15T12:00:00Z", tainted: isTainted }] } }),
  );
  await page.route("**/v1/memory", async (route) => {
    if (route.request().method() === "PUT") {
      const sent = route.request().postDataJSON() as { tainted: boolean };
      isTainted = sent.tainted;
      await route.fulfill({ json: sent });
    } else await route.fulfill({ json: { ...memory, tainted: isTainted } });
  });
  await page.goto("/memory");
  await expect(page.getByRole("link", { name: "From your question" })).toHaveAttribute("href", "/runs/run-1");
  await expect(page.getByText("Holds content of others")).toBeVisible();
  await page.getByRole("button", { name: "I have read all of it: confirm" }).click();
  await expect(page.getByText("Holds content of others")).toHaveCount(0);
});

test("a run's file is in its answer, its steps and the workspace, and saved under its name", async ({ page }) => {
  await ask(page, "Write the five best customers of last quarter to an Excel file");
  const turn = page.getByRole("article").first();
  await expect(turn).toHaveAttribute("data-status", "RUN_STATUS_SUCCEEDED");
  const saving = page.waitForEvent("download");
  await turn.getByRole("region", { name: "Files" }).getByRole("button", { name: "Download best-customers.xlsx" }).click();
  const saved = await saving;
  expect(saved.suggestedFilename()).toBe("best-customers.xlsx");
  expect(readFileSync(await saved.path()).subarray(0, 2).toString()).toBe("PK");
  await turn.getByRole("link", { name: "Open run" }).click();
  await expect(page.getByRole("region", { name: "Files" })).toContainText("best-customers.xlsx");
  await page.goto("/files");
  const file = page.getByRole("listitem").filter({ hasText: "best-customers.xlsx" });
  await expect(file).toContainText("Written by a run");
  await expect(file.getByRole("link", { name: "Open run" })).toHaveAttribute("href", /\/runs\//);
  await expectAccessible(page);
});

test("files are uploaded, shown as what they are, kept in versions and deleted", async ({ page }) => {
  await page.goto("/files");
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" onload="window.pwned = 1"><script>window.pwned = 1</script></svg>`;
  await drop(page, [
    sample("figures.csv", 'name,amount\n"A, B",=1+1\nC,2\n'),
    sample("picture.svg", svg),
    sample("page.html", "<img src=x onerror='window.pwned = 1'>"),
    sample("point.png", PNG),
    sample("bad\u202Ename.txt", "x"),
  ]);
  const uploads = page.getByRole("region", { name: "Uploads" });
  await expect(uploads.getByRole("status")).toHaveText("4 of 5 uploaded");
  await expect(uploads.locator("[data-state=failed]")).toContainText("bad\\u{202E}name.txt");
  await uploads.getByRole("button", { name: "Clear list" }).click();

  const dialog = page.getByRole("dialog", { name: "Preview" });
  const show = async (name: string) => {
    await page.getByRole("button", { name, exact: true }).click();
    await expect(dialog).toContainText(name);
  };
  await show("figures.csv");
  await expect(dialog.getByRole("table").getByRole("row")).toHaveCount(3);
  await expect(dialog.getByRole("cell").first()).toHaveText("A, B");
  await expectAccessible(page);
  await page.keyboard.press("Escape");
  await show("picture.svg");
  await expect(dialog.getByRole("region", { name: "Preview of picture.svg" })).toHaveText(svg);
  await page.keyboard.press("Escape");
  await show("page.html");
  await expect(dialog.getByRole("region", { name: "Preview of page.html" })).toContainText("<img src=x");
  await page.keyboard.press("Escape");
  await show("point.png");
  const picture = dialog.getByRole("img", { name: "point.png" });
  await expect.poll(() => picture.evaluate((image: HTMLImageElement) => image.naturalWidth)).toBe(1);
  await page.keyboard.press("Escape");
  await expect(dialog).toHaveCount(0);
  expect(await page.evaluate(() => "pwned" in globalThis)).toBe(false);

  await page.getByLabel("Upload files").last().setInputFiles([sample("figures.csv", "name,amount\nD,4\n")]);
  const files = page.getByRole("region", { name: "Files", exact: true });
  const csv = files.getByRole("listitem").filter({ hasText: "figures.csv" });
  await expect(csv.filter({ hasText: "version 2" })).toHaveCount(1);
  await csv.getByRole("button", { name: "Actions for figures.csv" }).click();
  await page.getByRole("menuitem", { name: "Versions" }).click();
  const versions = page.getByRole("list", { name: "Versions of figures.csv" });
  await expect(versions.getByRole("listitem")).toHaveText([/version 2/, /version 1/]);
  const saving = page.waitForEvent("download");
  await versions.getByRole("button", { name: "Download figures.csv" }).last().click();
  expect(readFileSync(await (await saving).path(), "utf8")).toContain("A, B");
  await page.keyboard.press("Escape");

  await page.getByRole("searchbox", { name: "Search by name" }).fill("point");
  await expect(files.getByRole("listitem")).toHaveCount(1);
  await page.getByRole("button", { name: "Actions for point.png" }).click();
  await page.getByRole("menuitem", { name: "Delete" }).click();
  await page.getByRole("dialog", { name: "Delete this file?" }).getByRole("button", { name: "Delete" }).click();
  await expect(page.getByText("Nothing matches.")).toBeVisible();
});
