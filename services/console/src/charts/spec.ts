/**
 * Which chart specifications are drawn: Vega-Lite from a closed set of keys, rows inline, bounded.
 *
 * A specification comes from an agent that may have read text of others. What loads, links, evaluates
 * or draws images has no key here, so it is refused before Vega sees it.
 */

export type Json = string | number | boolean | null | Json[] | { [key: string]: Json };
export type JsonMap = { [key: string]: Json };
export type Row = Record<string, string | number | boolean | null>;

/** A specification that passed all checks. */
export interface ChartSpec extends JsonMap {
  data: { values: Row[] };
}

export type Problem =
  /** It is larger than what is drawn here. */
  | { kind: "large" }
  /** It has a key or a value that none of the accepted ones has. */
  | { kind: "refused"; part: string }
  /** It is no Vega-Lite specification, or one that cannot be drawn. */
  | { kind: "invalid" }
  /** Drawing took longer than it may. */
  | { kind: "slow" };

export const MAX_SPEC_BYTES = 1024 * 1024;
const MAX_ROWS = 5000;
const MAX_CELLS = 50_000;
const MAX_CELL_CHARACTERS = 200;
const MAX_DEPTH = 12;
const MAX_PARTS = 5000;
const MAX_ITEMS = 1000;
const MAX_LAYERS = 20;
const MAX_TEXT_CHARACTERS = 500;
/** Largest number that is a length, a count or an angle, in pixels or degrees. */
const MAX_LENGTH = 4000;
const MAX_BINS = 1000;
const SCHEMA = /^https:\/\/vega\.github\.io\/schema\/vega-lite\/v[56](\.\d{1,2}){0,2}\.json$/;

const MARKS = new Set([
  "bar", "line", "area", "point", "arc", "text", "circle", "square", "rect", "rule", "tick", "trail",
]);

/** Keys outside the rows. None of them takes an address or an expression. */
const KEYS = new Set([
  // structure
  "$schema", "title", "description", "data", "mark", "encoding", "layer", "width", "height", "config", "text",
  "subtitle", "anchor", "type",
  // channels
  "x", "y", "x2", "y2", "xOffset", "yOffset", "theta", "theta2", "color", "opacity", "size", "shape", "detail",
  "order",
  // channels' definitions
  "field", "aggregate", "sort", "axis", "scale", "stack", "legend", "format", "timeUnit", "bin", "binned", "step",
  "value", "values",
  // axes, scales and legends
  "labelLimit", "labelAngle", "labelOverlap", "labels", "ticks", "domainMin", "domainMax", "minExtent", "maxExtent",
  "grid", "tickMinStep", "domain", "range", "nice", "zero", "reverse", "orient", "symbolType",
  // marks
  "point", "strokeWidth", "filled", "align", "baseline", "dx", "dy", "radius", "outerRadius", "innerRadius",
  "cornerRadius", "interpolate",
  // looks
  "background", "padding", "font", "locale", "view", "stroke", "fontSize", "fontWeight", "offset", "gridColor",
  "domainColor", "tickColor", "labelColor", "titleColor", "labelFontSize", "titleFontSize", "titlePadding",
  "titleFontWeight", "bar", "line", "area",
  // locale
  "number", "time", "decimal", "thousands", "grouping", "currency", "dateTime", "date", "periods", "days",
  "shortDays", "months", "shortMonths",
]);
const TEXTS = new Set(["title", "subtitle", "description", "text"]);
const COLOURS = new Set([
  "background", "gridColor", "domainColor", "tickColor", "labelColor", "titleColor", "stroke", "color", "range",
  "value",
]);
const ANY_TEXTS = new Set(["sort", "domain", "values", "currency"]);
/** Keys whose numbers are data: any that JSON holds. */
const NUMBERS_OF_DATA = new Set(["domain", "values", "domainMin", "domainMax", "step", "tickMinStep", "value"]);

const COLOUR = /^(#[0-9a-f]{3,8}|[a-z]{1,30})$/i;
const WORD = /^[\p{L}\p{M}\p{N}\p{Zs}_.,:;%()/'’"$#&+-]{0,80}$/u;
const FONT = /^[A-Za-z0-9 ,"'_-]{1,120}$/;
const FIELD = /^[A-Za-z_][A-Za-z0-9_]{0,80}$/;
const FORMAT = /^(?!.*\d{3})[^\\]{0,40}$/;
const TIME_UNIT = /^[a-z]{1,40}$/;
const RESERVED = new Set(["__proto__", "constructor", "prototype"]);
// eslint-disable-next-line no-control-regex -- they are what is looked for
const CONTROL = /[\u0000-\u001f\u007f\ud800-\udfff\ufffe\uffff]/u;

class Refusal extends Error {
  readonly problem: Problem;
  constructor(problem: Problem) {
    super(problem.kind);
    this.problem = problem;
  }
}

/** Reads a specification from its file. Returns it, or why it is not drawn; raises nothing. */
export function readSpec(content: string): { spec: ChartSpec } | { problem: Problem } {
  try {
    if (content.length > MAX_SPEC_BYTES) throw new Refusal({ kind: "large" });
    return { spec: checked(JSON.parse(content) as Json) };
  } catch (error) {
    return { problem: error instanceof Refusal ? error.problem : { kind: "invalid" } };
  }
}

function checked(spec: Json): ChartSpec {
  if (!isMap(spec)) throw new Refusal({ kind: "invalid" });
  if (typeof spec["$schema"] !== "string" || !SCHEMA.test(spec["$schema"])) refuse("$schema");
  const { data, ...rest } = spec;
  if (!isMap(data) || Object.keys(data).join() !== "values") refuse("data");
  checkRows(data["values"]);
  const parts = { left: MAX_PARTS };
  checkPart("", rest, 0, parts);
  const found = spec as ChartSpec;
  checkEncodings(found);
  return found;
}

function checkRows(rows: Json | undefined): void {
  if (!Array.isArray(rows) || rows.length === 0) throw new Refusal({ kind: "invalid" });
  if (rows.length > MAX_ROWS) throw new Refusal({ kind: "large" });
  let cells = 0;
  for (const row of rows) {
    if (!isMap(row)) refuse("values");
    for (const [name, cell] of Object.entries(row)) {
      cells += 1;
      if (cells > MAX_CELLS) throw new Refusal({ kind: "large" });
      if (RESERVED.has(name) || name.length > MAX_CELL_CHARACTERS) refuse(name);
      if (typeof cell === "object" && cell !== null) refuse(name);
      if (typeof cell === "string" && cell.length > MAX_CELL_CHARACTERS) throw new Refusal({ kind: "large" });
      if (typeof cell === "string" && CONTROL.test(cell)) refuse(name);
      if (typeof cell === "number" && !Number.isFinite(cell)) throw new Refusal({ kind: "large" });
    }
  }
}

function checkPart(key: string, part: Json, depth: number, parts: { left: number }): void {
  parts.left -= 1;
  if (depth > MAX_DEPTH || parts.left < 0) throw new Refusal({ kind: "large" });
  if (Array.isArray(part)) {
    if (part.length > (key === "layer" ? MAX_LAYERS : MAX_ITEMS)) throw new Refusal({ kind: "large" });
    for (const item of part) checkPart(key, item, depth + 1, parts);
  } else if (isMap(part)) {
    for (const [name, value] of Object.entries(part)) {
      if (!KEYS.has(name) || (name === "data" && depth > 0)) refuse(name);
      if (name === "mark") checkMark(value);
      checkPart(name, value, depth + 1, parts);
    }
  } else checkValue(key, part);
}

function checkMark(mark: Json): void {
  const type = isMap(mark) ? mark["type"] : mark;
  if (typeof type !== "string" || !MARKS.has(type)) refuse("mark");
}

function checkValue(key: string, value: string | number | boolean | null): void {
  if (typeof value === "number") {
    const limit = NUMBERS_OF_DATA.has(key) ? Number.MAX_VALUE : MAX_LENGTH;
    if (!(Math.abs(value) <= limit)) throw new Refusal({ kind: "large" });
  }
  if (typeof value !== "string" || key === "$schema") return;
  if (value.length > MAX_TEXT_CHARACTERS) throw new Refusal({ kind: "large" });
  if (CONTROL.test(value)) refuse(key);
  if (TEXTS.has(key)) return;
  if (key === "field" && (!FIELD.test(value) || RESERVED.has(value))) refuse(key);
  else if (key === "format" && !FORMAT.test(value)) refuse(key);
  else if (key === "timeUnit" && !TIME_UNIT.test(value)) refuse(key);
  else if (key === "font" && !FONT.test(value)) refuse(key);
  else if (COLOURS.has(key) && !COLOUR.test(value)) refuse(key);
  // Names in the order of an axis, and units of currency, are any text; they are drawn as text.
  else if (!ANY_TEXTS.has(key) && key !== "format" && !WORD.test(value)) refuse(key);
}

/** Fields exist, and bins and steps lead to a bounded number of parts. */
function checkEncodings(spec: ChartSpec): void {
  const rows = spec.data.values;
  const names = new Set(rows.flatMap((row) => Object.keys(row)));
  const height = spec["height"];
  for (const part of [spec, ...layersOf(spec)]) {
    const encoding = part["encoding"];
    if (encoding === undefined) continue;
    if (!isMap(encoding)) refuse("encoding");
    for (const [channel, definition] of Object.entries(encoding)) {
      if (definition === null) continue;
      if (!isMap(definition)) refuse(channel);
      const field = definition["field"];
      if (field !== undefined && (typeof field !== "string" || !names.has(field))) refuse("field");
      const bin = definition["bin"];
      if (isMap(bin) && typeof field === "string") checkBins(rows, field, bin["step"]);
      if (channel === "y" && isMap(height) && typeof field === "string") checkSteps(rows, field, height["step"]);
    }
  }
}

function checkBins(rows: Row[], field: string, step: Json | undefined): void {
  if (step === undefined) return;
  const numbers = rows.map((row) => row[field]).filter((cell) => typeof cell === "number");
  const extent = numbers.reduce((most, each) => Math.max(most, each), -Infinity) -
    numbers.reduce((least, each) => Math.min(least, each), Infinity);
  if (typeof step !== "number" || !(step > 0)) refuse("step");
  if (numbers.length > 0 && !(extent / step <= MAX_BINS)) throw new Refusal({ kind: "large" });
}

function checkSteps(rows: Row[], field: string, step: Json | undefined): void {
  if (typeof step !== "number" || !(step > 0)) refuse("step");
  if (new Set(rows.map((row) => row[field])).size * step > MAX_LENGTH) throw new Refusal({ kind: "large" });
}

/** Layers of a specification; they hold no layers themselves. */
export function layersOf(spec: JsonMap): JsonMap[] {
  const layers = spec["layer"];
  if (layers === undefined) return [];
  if (!Array.isArray(layers) || !layers.every(isMap)) refuse("layer");
  if (layers.some((layer) => "layer" in layer || "config" in layer)) refuse("layer");
  return layers;
}

export function isMap(value: Json | undefined): value is JsonMap {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function refuse(part: string): never {
  throw new Refusal({ kind: "refused", part: part.slice(0, 60) });
}
