import { afterEach, describe, expect, test, vi } from "vitest";

import { HOSTILE_CHARTS } from "../e2e/hostile-charts";
import { draw, render } from "../src/charts/draw";
import { Drawing, type Answer, type Drawer, type Task } from "../src/charts/drawing";
import { dressed, type Frame } from "../src/charts/look";
import { answerParts, furtherHighlights, placedSections } from "../src/charts/report";
import { isMap, readSpec, type ChartSpec, type JsonMap } from "../src/charts/spec";
import { spotAt, type Spot } from "../src/charts/spots";
import { chartTable } from "../src/charts/table";

const BARS = {
  $schema: "https://vega.github.io/schema/vega-lite/v6.json",
  title: { text: "Revenue by region" },
  data: { values: [{ region: "North", revenue: 12.5 }, { region: "South", revenue: 7 }] },
  width: 620,
  height: { step: 26 },
  encoding: {
    y: { field: "region", type: "nominal", sort: ["North", "South"], axis: { title: "Region", labelLimit: 230 } },
    x: { field: "revenue", type: "quantitative", axis: { title: "Revenue", format: "$,.2~f" } },
  },
  layer: [
    { mark: { type: "bar" } },
    { mark: { type: "text", color: "#1F2933" }, encoding: { text: { field: "revenue", type: "quantitative" } } },
  ],
  config: { locale: { number: { decimal: ".", thousands: "\u00a0", grouping: [3, 2], currency: ["Rs.", ""] } } },
};
const FRAME: Frame = {
  look: { text: "#111111", muted: "#222222", line: "#333333", background: "#fefefe", font: "sans-serif", series: ["#aa0000", "#00aa00"] },
  width: 400,
  hasTitle: false,
};

function accepted(value: object): ChartSpec {
  const read = readSpec(JSON.stringify(value));
  if (!("spec" in read)) throw new Error(`refused: ${JSON.stringify(read.problem)}`);
  return read.spec;
}

describe("specifications", () => {
  test.each(HOSTILE_CHARTS.map(({ name, spec, outcome }) => [name, spec, outcome]))("%s: %#", (_name, spec, outcome) => {
    const read = readSpec(spec);
    expect("spec" in read ? "accepted" : read.problem.kind).toBe(outcome);
  });
  test.each([
    ["rows up to the limit", { data: { values: Array.from({ length: 5000 }, () => ({ region: "x", revenue: 1 })) }, height: 100 }, true],
    ["rows beyond it", { data: { values: Array.from({ length: 5001 }, () => ({ region: "x", revenue: 1 })) }, height: 100 }, false],
    ["a step of bars that fits", { height: { step: 2000 } }, true],
    ["one that does not", { height: { step: 2001 } }, false],
    ["a colour by its name", { config: { background: "white" } }, true],
    ["a colour by a function", { config: { background: "var(--x)" } }, false],
    ["an older version of the schema", { $schema: "https://vega.github.io/schema/vega-lite/v5.20.1.json" }, true],
    ["another schema", { $schema: "https://vega.github.io/schema/vega/v6.json" }, false],
    ["a field that no row has", { encoding: { x: { field: "profit", type: "quantitative" } } }, false],
  ])("%s", (_name, change, isAccepted) => {
    expect("spec" in readSpec(JSON.stringify({ ...BARS, ...change }))).toBe(isAccepted);
  });
});

describe("pictures", () => {
  test("bars are drawn in the colours of the page, to its width, with their texts", async () => {
    const { svg, width } = await draw(accepted(BARS), FRAME);
    expect(width).toBe(400);
    expect(svg).toContain("#aa0000");
    expect(svg).not.toContain("#1F2933");
    for (const text of ["North", "South", "Rs.10"]) expect(svg).toContain(text);
    expect(svg).not.toContain("Revenue by region");
    const saved = await draw(accepted(BARS), { ...FRAME, hasTitle: true });
    expect(saved.svg).toContain("Revenue by region");
  });
  test("each mark has its place and its values, with the titles of axes", async () => {
    const { spots, width, height } = await draw(accepted(BARS), FRAME);
    expect(spots.map(({ values }) => values)).toEqual([
      [["Revenue", "Rs.12.5"], ["Region", "North"]],
      [["Revenue", "Rs.7"], ["Region", "South"]],
    ]);
    for (const { left, right, top, bottom } of spots) {
      expect([0 <= left, left < right, right <= width, 0 <= top, top < bottom, bottom <= height]).not.toContain(false);
    }
    const [north, south] = spots as [Spot, Spot];
    expect(north.bottom).toBeLessThanOrEqual(south.top);
    expect(spotAt(spots, north.left + 1, north.top + 1)).toBe(north);
    expect(spotAt(spots, south.right + 23, south.bottom - 1)).toBe(south); // near it
    expect(spotAt(spots, south.right + 25, south.bottom - 1)).toBeUndefined();
  });
  test("a slice of a pie is found by its angle, and nothing is found beside the pie", async () => {
    const pie = { ...BARS, layer: undefined, height: 200, width: 200, mark: { type: "arc" } };
    const encoding = { theta: { field: "revenue", type: "quantitative" }, color: { field: "region", type: "nominal" } };
    const { spots } = await draw(accepted(JSON.parse(JSON.stringify({ ...pie, encoding })) as object), FRAME);
    expect(spots).toHaveLength(2);
    const { x, y, outer } = spots[0]?.slice ?? { x: 0, y: 0, outer: 0 };
    const shown = [spotAt(spots, x + 5, y - outer / 2), spotAt(spots, x - 5, y - outer / 2)];
    expect(shown.map((spot) => spot?.values[1]?.[1])).toEqual(["North", "South"]);
    expect(spotAt(spots, x + outer + 1, y)).toBeUndefined();
  });
  test("what was accepted and cannot be drawn is an error and no picture", async () => {
    const spec = accepted({ ...BARS, layer: [{ mark: "bar" }], encoding: { x: { field: "revenue", type: "quantitative", scale: { type: "nothing" } } } });
    await expect(draw(spec, FRAME)).rejects.toThrow();
  });
  test("a specification is not changed by being dressed", () => {
    const spec = accepted(BARS);
    const before = JSON.stringify(spec);
    const drawn = dressed(spec, FRAME);
    expect(JSON.stringify(spec)).toBe(before);
    const { encoding } = drawn;
    const axis = isMap(encoding) && isMap(encoding["y"]) ? (encoding["y"]["axis"] as JsonMap) : {};
    expect(axis["labelLimit"]).toBe(136);
  });
});

describe("Vega behind the checks", () => {
  afterEach(() => vi.unstubAllGlobals());
  const marks = (url: string) => [
    { type: "image", encode: { enter: { url: { value: url }, width: { value: 9 }, height: { value: 9 } } } },
    { type: "rect", encode: { enter: { href: { value: "javascript:alert(1)" }, width: { value: 9 }, height: { value: 9 } } } },
  ];
  test.each(["https://attacker.example/i.png", "data:image/png;base64,AAAA", "/v1/users/me"])(
    "nothing of %s is loaded, linked or run",
    async (url) => {
      const fetched = vi.fn(() => Promise.reject(new Error("refused")));
      vi.stubGlobal("fetch", fetched);
      const run = vi.fn();
      vi.stubGlobal("pwned", run);
      const picture = await render({
        $schema: "https://vega.github.io/schema/vega/v6.json",
        width: 10,
        height: 10,
        signals: [{ name: "s", init: "toString.constructor ? 1 : 2" }],
        data: [{ name: "t", url }],
        marks: marks(url),
      }).catch(() => undefined);
      expect(fetched).not.toHaveBeenCalled();
      expect(run).not.toHaveBeenCalled();
      expect(picture?.svg ?? "").not.toMatch(/attacker|javascript|data:image|v1\/users/);
    },
  );
  test.each([
    "constructor.constructor('globalThis.pwned()')()",
    "[].constructor.constructor('globalThis.pwned()')()",
    "datum.toString.constructor('globalThis.pwned()')()",
    "(1).constructor.constructor('globalThis.pwned()')()",
  ])("the expression %s runs no code", async (update) => {
    const run = vi.fn();
    vi.stubGlobal("pwned", run);
    await render({ width: 1, height: 1, signals: [{ name: "s", update }] }).catch(() => undefined);
    expect(run).not.toHaveBeenCalled();
  });
});

class Scripted implements Drawer {
  onmessage: Drawer["onmessage"] = null;
  onerror: Drawer["onerror"] = null;
  isEnded = false;
  private readonly reply: Answer | "error" | undefined;
  constructor(reply: Answer | "error" | undefined) {
    this.reply = reply;
  }
  postMessage(): void {
    queueMicrotask(() => {
      if (this.reply === "error") this.onerror?.({} as ErrorEvent);
      else if (this.reply) this.onmessage?.({ data: this.reply } as MessageEvent<Answer>);
    });
  }
  terminate(): void {
    this.isEnded = true;
  }
}

describe("the queue of drawings", () => {
  afterEach(() => vi.useRealTimers());
  const task: Task = { spec: accepted(BARS), frame: FRAME };
  const picture = { svg: "<svg/>", width: 1, height: 1, spots: [] };
  const signal = new AbortController().signal;

  test("a worker that does not answer is ended, and the next chart is drawn by another one", async () => {
    vi.useFakeTimers();
    const workers = [new Scripted(undefined), new Scripted({ picture })];
    let started = 0;
    const drawing = new Drawing(() => workers[started++] as Drawer, 1000);
    const slow = drawing.draw(task, signal);
    const next = drawing.draw(task, signal);
    await vi.advanceTimersByTimeAsync(1000);
    expect(await slow).toEqual({ problem: { kind: "slow" } });
    expect(workers[0]?.isEnded).toBe(true);
    expect(await next).toEqual({ picture });
  });
  test("a worker that fails is replaced, and says that the chart is not valid", async () => {
    const workers = [new Scripted("error"), new Scripted({ picture: undefined })];
    let started = 0;
    const drawing = new Drawing(() => workers[started++] as Drawer);
    expect(await drawing.draw(task, signal)).toEqual({ problem: { kind: "invalid" } });
    expect(workers[0]?.isEnded).toBe(true);
    expect(await drawing.draw(task, signal)).toEqual({ problem: { kind: "invalid" } });
  });
  test("a chart that was left is not drawn", async () => {
    const drawing = new Drawing(() => {
      throw new Error("it was begun");
    });
    await expect(drawing.draw(task, AbortSignal.abort())).rejects.toThrow("abort");
  });
});

test("the table has the rows of the chart, under the titles of its axes", () => {
  const { columns, rows } = chartTable(accepted(BARS));
  expect(columns).toEqual([
    { name: "Region", type: "COLUMN_TYPE_STRING", unit: "" },
    { name: "Revenue", type: "COLUMN_TYPE_DOUBLE", unit: "" },
  ]);
  expect(rows).toEqual([["North", 12.5], ["South", 7]]);
});

describe("reports", () => {
  const TEXT = "- **Most** came from pumps.\n\n## Sales by month\n\nUp.\n\n### Detail\n\nMore.\n\n## By region:\n\nWest.\n";
  const section = (heading: string) => ({ heading, finding: "", step_ids: [], charts: [1], sources: [] });

  test("parts begin at headings, and joined are the text again", () => {
    const parts = answerParts(TEXT);
    expect(parts.map(({ heading }) => heading)).toEqual(["", "Sales by month", "By region:"]);
    expect(parts.map(({ text }) => text).join("")).toBe(TEXT);
    expect(answerParts("```\n## no heading\n```\n")).toHaveLength(1);
  });
  test("sections stand at their headings, others after the text", () => {
    const { placed, others } = placedSections(answerParts(TEXT), [section("By Region"), section("Elsewhere"), section("")]);
    expect([...placed.keys()]).toEqual([2]);
    expect(others.map(({ heading }) => heading)).toEqual(["Elsewhere", ""]);
  });
  test("highlights that the text says are not said twice", () => {
    expect(furtherHighlights(TEXT, ["Most came from pumps.", "Most came from…", "Valves fell."])).toEqual(["Valves fell."]);
  });
});
