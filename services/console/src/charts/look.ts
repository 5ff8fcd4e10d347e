/** A specification in the look of the page: its colours, its font, and the width that there is. */
import { isMap, layersOf, type ChartSpec, type Json, type JsonMap } from "./spec";

/** Values of the tokens that a chart is drawn with. */
export interface Look {
  text: string;
  muted: string;
  line: string;
  background: string;
  font: string;
  /** Colours of series, in order. */
  series: string[];
}

export interface Frame {
  look: Look;
  /** Width of the whole picture in pixels. */
  width: number;
  /** Whether the picture carries its title: it does when it is saved, and not on a page that has it. */
  hasTitle: boolean;
}

const NARROWEST_PX = 260;
const WIDEST_PX = 1400;
/** Share of the width that names beside bars may take, and of a height that is given in pixels. */
const LABEL_SHARE = 0.34;
const HEIGHT_SHARE = 0.62;
const LOWEST_PX = 180;
/** Room beside the last label of an axis and the longest bar, which Vega does not reckon with. */
const OVERHANG_PX = 40;
/** Half of the width by which an amount of money is longer than the room that pies leave to it. */
const CLEAR_PX = 20;

/** The specification as it is drawn; the one given is not changed. */
export function dressed(spec: ChartSpec, { look, width, hasTitle }: Frame): JsonMap {
  const { title, ...rest } = structuredClone(spec) as JsonMap;
  const px = Math.round(Math.min(WIDEST_PX, Math.max(NARROWEST_PX, width)));
  const drawn: JsonMap = { ...rest, config: config(spec, look), background: look.background };
  if (hasTitle && title !== undefined) drawn["title"] = title;
  const parts = [drawn, ...layersOf(drawn)];
  if (!parts.some((part) => markOf(part) === "arc")) {
    drawn["width"] = px;
    drawn["padding"] = { left: 4, top: 4, bottom: 4, right: parts.some(hasNumbersAcross) ? OVERHANG_PX : 8 };
    if (typeof drawn["height"] === "number") {
      drawn["height"] = Math.min(drawn["height"], Math.max(LOWEST_PX, Math.round(px * HEIGHT_SHARE)));
    }
    drawn["autosize"] = { type: "fit-x", contains: "padding" };
  }
  for (const part of parts) {
    if (markOf(part) === "text") paint(part, look.text);
    const encoding = part["encoding"];
    if (!isMap(encoding)) continue;
    for (const definition of Object.values(encoding)) {
      if (!isMap(definition)) continue;
      fitLabels(definition["axis"], Math.round(px * LABEL_SHARE));
      recolour(definition["scale"], look.series);
    }
  }
  return drawn;
}

function markOf(part: JsonMap): Json | undefined {
  return isMap(part["mark"]) ? part["mark"]["type"] : part["mark"];
}

function hasNumbersAcross({ encoding }: JsonMap): boolean {
  return isMap(encoding) && isMap(encoding["x"]) && encoding["x"]["type"] === "quantitative";
}

/** Text has the colour of text in every chart; beside a pie it keeps clear of it. */
function paint(part: JsonMap, colour: string): void {
  if (isMap(part["mark"])) {
    part["mark"]["color"] = colour;
    if (typeof part["mark"]["radius"] === "number") part["mark"]["radius"] += CLEAR_PX;
  }
  const encoding = part["encoding"];
  if (isMap(encoding) && isMap(encoding["color"]) && "value" in encoding["color"]) {
    encoding["color"] = { value: colour };
  }
}

function fitLabels(axis: Json | undefined, limit: number): void {
  if (!isMap(axis)) return;
  for (const key of ["labelLimit", "minExtent"]) {
    const value = axis[key];
    if (typeof value === "number" && value > 0) axis[key] = Math.min(value, limit);
  }
  if (typeof axis["maxExtent"] === "number") axis["maxExtent"] = Math.min(axis["maxExtent"], 2 * limit);
}

function recolour(scale: Json | undefined, series: string[]): void {
  if (!isMap(scale) || !Array.isArray(scale["range"]) || series.length === 0) return;
  if (scale["range"].every((each) => typeof each === "string")) {
    scale["range"] = scale["range"].map((_, index) => series[index % series.length] ?? "");
  }
}

function config(spec: ChartSpec, look: Look): JsonMap {
  const given = isMap(spec["config"]) ? spec["config"] : {};
  const first = look.series[0] ?? look.text;
  const labels = { labelColor: look.muted, titleColor: look.muted };
  const part = (name: string, more: JsonMap): JsonMap => ({
    ...(isMap(given[name]) ? given[name] : {}),
    ...more,
  });
  return {
    ...given,
    background: look.background,
    font: look.font,
    padding: 4,
    view: { stroke: null },
    title: part("title", { color: look.text, font: look.font }),
    axis: part("axis", { ...labels, gridColor: look.line, domainColor: look.line, tickColor: look.line }),
    legend: part("legend", labels),
    text: part("text", { color: look.text }),
    range: { category: look.series },
    mark: { color: first, tooltip: true },
    tooltipFormat: { numberFormat: ",.6~f" },
    ...Object.fromEntries(["bar", "line", "area", "point"].map((mark) => [mark, part(mark, { color: first })])),
  };
}
