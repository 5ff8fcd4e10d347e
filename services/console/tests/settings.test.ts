import { readFileSync, readdirSync } from "node:fs";
import { expect, test, vi } from "vitest";

import { requestOf } from "../src/chat/ask";
import { de } from "../src/messages/de";
import { en } from "../src/messages/en";
import { parsed, shownLanguage, shownLocale, THEMES, wholeNumber } from "../src/settings/preferences";
import { shownCell } from "../src/text/table";

/** Keys with their types, and how many values a sentence takes. */
function shapeOf(value: unknown): unknown {
  if (typeof value === "function") return `function of ${String(value.length)}`;
  if (typeof value !== "object" || value === null) return typeof value;
  return Object.fromEntries(
    Object.entries(value)
      .toSorted(([left], [right]) => left.localeCompare(right))
      .map(([key, each]) => [key, shapeOf(each)]),
  );
}

function textsOf(value: unknown, path = ""): [string, string][] {
  if (typeof value === "string") return [[path, value]];
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, each]) => textsOf(each, `${path}.${key}`));
}

test("both catalogues have the same shape", () => {
  expect(shapeOf(de)).toEqual(shapeOf(en));
});

test("no text of the German catalogue is empty", () => {
  expect(textsOf(de).filter(([, text]) => text.trim() === "")).toEqual([]);
});

test("all themes define the same tokens", () => {
  const folder = new URL("../src/styles/themes/", import.meta.url);
  const files = readdirSync(folder).toSorted();
  expect(files).toEqual(THEMES.filter((each) => each !== "system").map((each) => `${each}.css`).toSorted());
  const [first, ...others] = files.map((name) =>
    [...readFileSync(new URL(name, folder), "utf8").matchAll(/^ {2}([\w-]+):/gm)].map(([, token]) => token),
  );
  expect(first?.length).toBeGreaterThan(15);
  for (const tokens of others) expect(tokens).toEqual(first);
});

test("the page's language is the one that was set, else the browser's first that there is", () => {
  const unset = parsed(null);
  expect(shownLanguage(unset, ["fr-FR", "de-AT", "en"])).toBe("de");
  expect(shownLanguage(unset, ["fr-FR"])).toBe("en");
  expect(shownLanguage({ ...unset, language: "en" }, ["de"])).toBe("en");
});

test("numbers are written as was set, else as the browser writes the page's language", () => {
  const unset = parsed(null);
  expect(shownLocale(unset, ["fr-FR", "de-AT"])).toBe("de-AT");
  expect(shownLocale({ ...unset, language: "en" }, ["de-AT"])).toBe("en");
  expect(shownLocale({ ...unset, locale: "de-CH" }, ["en-US"])).toBe("de-CH");
  const column = { name: "revenue", type: "COLUMN_TYPE_DECIMAL" } as Parameters<typeof shownCell>[1];
  expect(shownCell("-1234567.50", column, "de-DE")).toBe("-1.234.567,50");
  expect(shownCell("1234567.50", column, "en-IN")).toBe("12,34,567.50");
});

test("what is invalid in stored settings counts as unset", () => {
  expect(parsed("{")).toEqual(parsed(null));
  expect(parsed("[]")).toEqual(parsed(null));
  const found = parsed(
    JSON.stringify({ theme: "<b>", language: "xx", locale: "no locale", maxRows: -1, maxColumns: 2.5, timeoutS: "9" }),
  );
  expect(found).toEqual(parsed(null));
  const long = "x".repeat(999);
  expect(parsed(JSON.stringify({ theme: "bank", maxRows: 20, backend: long, model: long }))).toMatchObject({
    theme: "bank",
    maxRows: 20,
    backend: "x".repeat(128),
    model: "x".repeat(128),
  });
  expect(parsed(JSON.stringify({ model: ["large"] })).model).toBe("");
});

test("numbers have bounds on both sides", () => {
  expect([0, 1, 10, 11, 1.5, NaN].map((each) => wholeNumber(each, 10))).toEqual([
    undefined, 1, 10, undefined, undefined, undefined,
  ]);
});

test("settings are sent with each question in the fields that the API has for them", () => {
  const question = { question: "How many?", conversationId: "c" };
  expect(requestOf(question, "r", parsed(null))).toEqual({
    question: "How many?",
    request_id: "r",
    conversation_id: "c",
    trace: true,
    context: { time_zone: Intl.DateTimeFormat().resolvedOptions().timeZone },
  });
  const set = { ...parsed(null), maxRows: 7, maxColumns: 3, timeoutS: 30, backend: "demo" };
  expect(requestOf(question, "r", set)).toMatchObject({
    max_rows: 7,
    max_columns: 3,
    timeout: "30s",
    backend: "demo",
  });
});

test("a model is sent while it is offered, and no other", () => {
  const question = { question: "How many?", conversationId: "c" };
  const models = [{ name: "large", label: "Thorough" }];
  const asked = (model: string, offered = models) =>
    requestOf(question, "r", { ...parsed(null), model }, offered);
  expect(asked("large")).toMatchObject({ model: "large" });
  for (const request of [asked(""), asked("Thorough"), asked("gone"), asked("large", [])]) {
    expect(request).not.toHaveProperty("model");
  }
});

test("another account in this browser begins with no settings of questions, the same one keeps them", async () => {
  const store: Record<string, string> = {};
  vi.stubGlobal("localStorage", {
    getItem: (key: string) => store[key] ?? null,
    setItem: (key: string, value: string) => {
      store[key] = value;
    },
  });
  vi.resetModules();
  const { preferences } = await import("../src/settings/preferences");
  preferences.set({ theme: "bank", maxRows: 7, model: "large" });
  preferences.belongTo("ada");
  preferences.belongTo("ada");
  expect(preferences.read()).toMatchObject({ theme: "bank", maxRows: 7, model: "large" });
  preferences.belongTo("eve");
  expect(preferences.read()).toMatchObject({ theme: "bank", maxRows: undefined, model: "", owner: "eve" });
  vi.unstubAllGlobals();
});

test("index.html has the places where the REST gateway writes name and logo of the installation", () => {
  const index = readFileSync(new URL("../index.html", import.meta.url), "utf8");
  for (const place of [
    "<title>Bos</title>",
    'name="application-name" content="Bos"',
    'href="/favicon.svg" type="image/svg+xml"',
  ]) {
    expect(index.split(place)).toHaveLength(2);
  }
});
