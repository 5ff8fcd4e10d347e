/**
 * Draws a specification as SVG text, without the page: Vega by its interpreter, so that no code is made
 * from a specification, and with a loader that refuses every address.
 */
import { expressionInterpreter } from "vega-interpreter";
import * as vega from "vega";
import { parse, View, Warn, type Loader, type Spec } from "vega";
import { compile, type TopLevelSpec } from "vega-lite";

import { dressed, type Frame } from "./look";
import type { ChartSpec, JsonMap } from "./spec";
import { spotsOf, type Spot } from "./spots";
import { titlesOf } from "./table";

/** A picture, its size in pixels, and where its marks are. */
export interface Picture {
  svg: string;
  width: number;
  height: number;
  spots: Spot[];
}

/** Parts of Vega's measuring of texts, which its types leave out. */
const { font, textMetrics } = vega as unknown as {
  font: (item: object) => string;
  textMetrics: { width: (item: { limit?: number }, text: unknown) => number };
};

const MAX_SVG_CHARACTERS = 4 * 1024 * 1024;
const MAX_PX = 6000;

function refuse(): Promise<never> {
  return Promise.reject(new Error("charts load nothing"));
}

const LOADER = { load: refuse, sanitize: refuse, http: refuse, file: refuse, options: {} } as unknown as Loader;

/** Warnings of both libraries go nowhere: they hold content of the specification. */
const SILENT = (() => {
  const logger = { level: () => logger, error: () => logger, warn: () => logger, info: () => logger, debug: () => logger };
  return logger as never;
})();

/** Draws a checked specification. Rejects if the libraries cannot draw it, or the picture is too large. */
export async function draw(spec: ChartSpec, frame: Frame): Promise<Picture> {
  measureByCanvas();
  const compiled = compile(dressed(spec, frame) as unknown as TopLevelSpec, { logger: SILENT }).spec;
  return render(compiled, titlesOf(spec));
}

/** Draws a specification of Vega itself, whose fields have these titles. */
export async function render(spec: Spec | JsonMap, titles: ReadonlyMap<string, string> = new Map()): Promise<Picture> {
  const runtime = parse(spec as Spec, undefined, { ast: true });
  const view = new View(runtime, {
    expr: expressionInterpreter,
    loader: LOADER,
    renderer: "none",
    logLevel: Warn,
    logger: SILENT,
  } as ConstructorParameters<typeof View>[1]);
  try {
    const svg = await view.toSVG();
    const size = /^<svg[^>]* width="([\d.]+)" height="([\d.]+)"/.exec(svg);
    const width = Number(size?.[1]);
    const height = Number(size?.[2]);
    if (!(width <= MAX_PX && height <= MAX_PX) || svg.length > MAX_SVG_CHARACTERS) {
      throw new Error("the picture is too large");
    }
    return { svg, width, height, spots: spotsOf(view, titles) };
  } finally {
    view.finalize();
  }
}

/** In a worker there is no document, so Vega would estimate the widths of texts. */
function measureByCanvas(): void {
  if (typeof OffscreenCanvas === "undefined") return;
  const context = new OffscreenCanvas(1, 1).getContext("2d");
  if (!context) return;
  textMetrics.width = (item, text) => {
    context.font = font(item);
    const { width } = context.measureText(String(text ?? ""));
    return item.limit !== undefined && item.limit > 0 ? Math.min(width, item.limit) : width;
  };
}
