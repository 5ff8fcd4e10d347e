/** Cells of result tables: order, alignment, and what leaves the page. */
import type { Table } from "../api/types";
import { shownLanguage, shownLocale } from "../settings/preferences";

export type Column = Table["columns"][number];
export type Cell = unknown;

const NUMBERS = new Set<Column["type"]>([
  "COLUMN_TYPE_INT64",
  "COLUMN_TYPE_DECIMAL",
  "COLUMN_TYPE_DOUBLE",
]);
const NUMBER = /^[-+]?\d+(\.\d+)?([eE][-+]?\d+)?$/;

export function isNumeric(column: Column): boolean {
  return NUMBERS.has(column.type);
}

/** Cells of a row: the API gives arrays in the order of the columns. */
export function cellsOf(row: Table["rows"][number]): Cell[] {
  return row as unknown as Cell[];
}

/** A cell as plain text; empty for null. */
export function cellText(cell: Cell): string {
  if (cell === null || cell === undefined) return "";
  return typeof cell === "object" ? JSON.stringify(cell) : String(cell);
}

/** A cell for reading: numbers grouped as the locale does it, every digit kept. */
export function shownCell(cell: Cell, column: Column, locale = shownLocale()): string {
  const text = cellText(cell);
  if (!isNumeric(column) || !NUMBER.test(text)) return text;
  if (column.type === "COLUMN_TYPE_DOUBLE") return new Intl.NumberFormat(locale, { maximumFractionDigits: 6 }).format(Number(text));
  const decimals = text.split(".")[1]?.length ?? 0;
  const format = new Intl.NumberFormat(locale, {
    minimumFractionDigits: Math.min(decimals, 100),
    maximumFractionDigits: Math.min(decimals, 100),
  });
  // Strings are formatted exactly; as numbers they would lose digits beyond 2^53.
  return format.format(text as `${number}`);
}

/** Row indexes in order of a column. Empty cells stand last in both directions. */
export function sortedRows(table: Table, column: number, isDescending: boolean): number[] {
  const numeric = table.columns[column] !== undefined && isNumeric(table.columns[column]);
  const texts = table.rows.map((row) => cellText(cellsOf(row)[column]));
  const collator = new Intl.Collator(shownLanguage(), { numeric: true });
  const compare = numeric ? compareDecimals : collator.compare;
  return texts
    .map((_, index) => index)
    .sort((left, right) => {
      const a = texts[left] ?? "";
      const b = texts[right] ?? "";
      if (a === "" || b === "") return Number(a === "") - Number(b === "") || left - right;
      return (isDescending ? compare(b, a) : compare(a, b)) || left - right;
    });
}

/** Compares decimal texts of any length without loss. */
export function compareDecimals(left: string, right: string): number {
  const difference = Number(left) - Number(right);
  if (Number.isNaN(difference)) return left.localeCompare(right);
  if (difference !== 0) return difference;
  const digits = Math.max(fraction(left), fraction(right));
  if (/[eE]/.test(left + right)) return 0;
  const a = scaled(left, digits);
  const b = scaled(right, digits);
  return a < b ? -1 : Number(a > b);
}

function fraction(text: string): number {
  return text.split(".")[1]?.length ?? 0;
}

function scaled(text: string, digits: number): bigint {
  const [whole = "0", part = ""] = text.split(".");
  return BigInt(whole.replace("+", "") + part.padEnd(digits, "0"));
}

/**
 * The table as CSV (RFC 4180) that spreadsheets open without running anything: text that they would
 * take for a formula is preceded by an apostrophe. Numbers stay numbers.
 */
export function toCsv(table: Table, order = table.rows.map((_, index) => index)): string {
  const lines = [table.columns.map((column) => csvCell(column.name))];
  for (const index of order) {
    const row = table.rows[index];
    if (row) lines.push(cellsOf(row).map((cell) => csvCell(cellText(cell))));
  }
  return lines.map((cells) => cells.join(",")).join("\r\n") + "\r\n";
}

function csvCell(text: string): string {
  const safe = escapeFormula(text);
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Makes a text inert in spreadsheets, if it begins like a formula and is no number. */
export function escapeFormula(text: string): string {
  return /^[\s\u200B\uFEFF]*[=+\-@\uFF1D\uFF0B\uFF0D\uFF20]|^[\t\r]/.test(text) && !NUMBER.test(text)
    ? `'${text}`
    : text;
}

/** The table as tab-separated text, as spreadsheets take it from the clipboard. */
export function toTsv(table: Table, order = table.rows.map((_, index) => index)): string {
  const flat = (text: string) => escapeFormula(text.replace(/[\t\r\n]+/g, " "));
  const rows = order.map((index) => table.rows[index]).filter((row) => row !== undefined);
  return [
    table.columns.map((column) => flat(column.name)),
    ...rows.map((row) => cellsOf(row).map((cell) => flat(cellText(cell)))),
  ]
    .map((cells) => cells.join("\t"))
    .join("\n");
}
