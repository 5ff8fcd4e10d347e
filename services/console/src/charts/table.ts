/** The rows of a chart as a table: what the picture shows, for those who do not see it. */
import type { Table } from "../api/types";
import { isMap, layersOf, type ChartSpec, type JsonMap } from "./spec";

/** Columns have the titles of their axes and legends. */
export function chartTable(spec: ChartSpec): Table {
  const rows = spec.data.values;
  const titles = titlesOf(spec);
  const names = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  return {
    columns: names.map((name) => ({
      name: titles.get(name) ?? name,
      type: rows.every((row) => row[name] == null || typeof row[name] === "number")
        ? "COLUMN_TYPE_DOUBLE"
        : "COLUMN_TYPE_STRING",
      unit: "",
    })),
    rows: rows.map((row) => names.map((name) => row[name] ?? null)) as never,
    row_count: String(rows.length),
    truncated: false,
  } as Table;
}

/** Titles of axes and legends by their fields. */
export function titlesOf(spec: ChartSpec): Map<string, string> {
  const titles = new Map<string, string>();
  for (const part of [spec, ...layersOf(spec)]) {
    if (!isMap(part["encoding"])) continue;
    for (const definition of Object.values(part["encoding"])) {
      if (!isMap(definition) || typeof definition["field"] !== "string") continue;
      const title = titleOf(definition);
      if (title) titles.set(definition["field"], title);
    }
  }
  return titles;
}

function titleOf(definition: JsonMap): string {
  const found = [definition, definition["axis"], definition["legend"]]
    .filter(isMap)
    .map((place) => place["title"])
    .find((title) => typeof title === "string" && title !== "");
  return typeof found === "string" ? found : "";
}
