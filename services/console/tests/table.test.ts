import { describe, expect, test } from "vitest";

import type { Table } from "../src/api/types";
import { compareDecimals, escapeFormula, shownCell, sortedRows, toCsv, toTsv } from "../src/text/table";

const table = (columns: [string, string][], rows: unknown[][]): Table =>
  ({
    columns: columns.map(([name, type]) => ({ name, type: `COLUMN_TYPE_${type}` })),
    rows,
    row_count: String(rows.length),
    truncated: false,
  }) as unknown as Table;

describe("formulas", () => {
  test.each(["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", " =cmd|'/c calc'!A0", "\uFF1D1+1", "\r=1", "-2+3"])(
    "%j is made inert",
    (text) => expect(escapeFormula(text)).toBe(`'${text}`),
  );
  test.each(["-12.50", "+7", "1e5", "-1.5E-3", "a=b", "x@y.example", ""])("%j stays", (text) =>
    expect(escapeFormula(text)).toBe(text),
  );
});

test("CSV quotes what needs it, and names of columns are no formulas either", () => {
  const found = toCsv(table([["=a", "STRING"], ["b", "DECIMAL"]], [['say "hi",\nnow', "-1.50"], [null, "2"]]));
  expect(found).toBe('\'=a,b\r\n"say ""hi"",\nnow",-1.50\r\n,2\r\n');
});

test("copied text has no line breaks or tabs within a cell", () => {
  expect(toTsv(table([["a", "STRING"]], [["x\ty\nz"], ["=1"]]))).toBe("a\nx y z\n'=1");
});

test("decimals are ordered by value beyond what numbers hold", () => {
  expect(compareDecimals("9007199254740993", "9007199254740992")).toBeGreaterThan(0);
  expect(compareDecimals("10", "9.5")).toBeGreaterThan(0);
  expect(compareDecimals("1.50", "1.5")).toBe(0);
  expect(compareDecimals("-0.0000000000000000000002", "-0.0000000000000000000001")).toBeLessThan(0);
});

test("rows are sorted by type, empty cells last in both directions", () => {
  const numbers = table([["n", "DECIMAL"]], [["10"], [null], ["9"], ["-1"]]);
  expect(sortedRows(numbers, 0, false)).toEqual([3, 2, 0, 1]);
  expect(sortedRows(numbers, 0, true)).toEqual([0, 2, 3, 1]);
  const texts = table([["t", "STRING"]], [["item 10"], ["item 9"]]);
  expect(sortedRows(texts, 0, false)).toEqual([1, 0]);
});

test("numbers are grouped without losing digits", () => {
  const decimal = { name: "n", type: "COLUMN_TYPE_DECIMAL", unit: "" } as const;
  expect(shownCell("9007199254740993.10", decimal, "en-IN")).toBe("9,00,71,99,25,47,40,993.10");
  expect(shownCell("n/a", decimal, "en")).toBe("n/a");
  expect(shownCell("2026", { name: "s", type: "COLUMN_TYPE_STRING", unit: "" }, "en")).toBe("2026");
});
