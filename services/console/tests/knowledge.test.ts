import { describe, expect, test } from "vitest";

import { narrowed } from "../src/documents/narrowing";
import { isTooLarge, previewKind, runAddress, workspaceAddress } from "../src/files/content";
import { parseCsv } from "../src/files/csv";
import { changed, type Memory } from "../src/memory/facts";
import { de, en } from "../src/messages/knowledge";
import { shownBytes } from "../src/text/bytes";
import { safeFileName } from "../src/text/fileName";

describe("CSV", () => {
  test.each([
    ["", []],
    ["a,b\r\n1,2\r\n", [["a", "b"], ["1", "2"]]],
    ["a;b\n1,5;2", [["a", "b"], ["1,5", "2"]]],
    ["a\tb\n1\t", [["a", "b"], ["1", ""]]],
    ['"a ""x"", y","line\nbreak"\n', [['a "x", y', "line\nbreak"]]],
    ['\uFEFFa,b\r1,2', [["a", "b"], ["1", "2"]]],
    ['"not closed', [["not closed"]]],
    ["a,b\n\nc", [["a", "b"], [""], ["c"]]],
  ])("%j", (text, rows) => expect(parseCsv(text, 100)).toEqual(rows));

  test("no more rows than asked for", () => {
    expect(parseCsv("a\n".repeat(10), 3)).toHaveLength(3);
  });
});

describe("names of saved files", () => {
  test.each([
    ["report.pdf", "report.pdf"],
    ["Übersicht 2026.xlsx", "Übersicht 2026.xlsx"],
    ["invoice\u202Efdp.exe", "invoice_fdp.exe"],
    ["../../etc/passwd", "_.._etc_passwd"],
    ["a\u0000b\nc.txt", "a_b_c.txt"],
    ["CON:aux?.txt", "CON_aux_.txt"],
    [" .hidden. ", "hidden"],
    ["", "file"],
    ["...", "file"],
  ])("%j becomes %j", (name, safe) => expect(safeFileName(name)).toBe(safe));

  test("a long name keeps its ending, also where its characters are pairs", () => {
    const safe = safeFileName(`${"😀".repeat(300)}.pdf`);
    expect([...safe].length).toBe(150);
    expect(safe.endsWith("😀.pdf")).toBe(true);
  });
});

describe("previews", () => {
  const file = (mediaType: string, sizeBytes = 10) => ({ address: "", name: "x", mediaType, sizeBytes });
  test.each([
    ["image/png", "image"],
    ["IMAGE/JPEG", "image"],
    ["image/svg+xml", "text"],
    ["text/html; charset=utf-8", "text"],
    ["application/xhtml+xml", "text"],
    ["text/csv", "table"],
    ["application/json", "text"],
    ["application/pdf", "none"],
    ["image/tiff", "none"],
    ["", "none"],
  ])("%s is shown as %s", (mediaType, kind) => expect(previewKind(file(mediaType))).toBe(kind));

  test("large ones are not read into the page", () => {
    expect(isTooLarge(file("text/plain", 5_000_000))).toBe(false);
    expect(isTooLarge(file("text/plain", 5_000_001))).toBe(true);
    expect(isTooLarge(file("image/png", 20_000_000))).toBe(false);
  });

  test("addresses hold names as one segment", () => {
    expect(workspaceAddress("a/b?c#d%.txt", 2)).toBe("/v1/files/a%2Fb%3Fc%23d%25.txt?version=2");
    expect(runAddress("r/1", "sha256:ab")).toBe("/v1/runs/r%2F1/files/ab");
  });
});

describe("memory", () => {
  const memory: Memory = {
    critical: { user_name: "Asha", company_name: "", job_title: "", recent_projects: ["Mill", "Kiln"] },
    tainted: true,
  };
  test.each([
    [{ field: "user_name", before: "Asha", after: "Asha Rao" }, { user_name: "Asha Rao" }],
    [{ field: "user_name", before: "Asha", after: "" }, { user_name: "" }],
    [{ field: "recent_projects", before: "Mill", after: "" }, { recent_projects: ["Kiln"] }],
    [{ field: "recent_projects", before: "Mill", after: "Press" }, { recent_projects: ["Press", "Kiln"] }],
    [{ field: "recent_projects", before: "", after: "Dam" }, { recent_projects: ["Mill", "Kiln", "Dam"] }],
  ] as const)("%j", (change, critical) => {
    expect(changed(memory, change)).toEqual({ ...memory, critical: { ...memory.critical, ...critical } });
  });

  test("a preference where there was none, and what was not confirmed stays so", () => {
    const after = changed(memory, { field: "tone", before: "", after: "formal" });
    expect(after.preferences).toEqual({ tone: "formal", detail_level: "", language: "" });
    expect(after.tainted).toBe(true);
  });
});

test("an address with unknown parameters narrows by the known ones", () => {
  expect(narrowed({ q: "supply", state: "failed", other: 1 })).toEqual({ q: "supply", state: "failed" });
  expect(narrowed({ q: 7, state: "toString" })).toEqual({});
});

test("sizes are said in units of ten", () => {
  expect([shownBytes(1), shownBytes("999"), shownBytes(1500), shownBytes("33554432")]).toEqual([
    "1 byte",
    "999 bytes",
    "1.5 kB",
    "34 MB",
  ]);
});

test("each failure has words in both languages", () => {
  expect(Object.keys(de.failures)).toEqual(Object.keys(en.failures));
});
