/** Chart specifications that try to load, to link, to run, to draw images, or to keep the page busy. */

const HOST = "https://attacker.example";
const SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json";
const ROWS = [
  { name: "a", value: 1 },
  { name: "b", value: 2 },
];
const ENCODING = {
  x: { field: "name", type: "nominal" },
  y: { field: "value", type: "quantitative" },
};

/** A harmless specification, and what is changed in it. */
function lite(change: object): string {
  return JSON.stringify({ $schema: SCHEMA, data: { values: ROWS }, mark: "bar", encoding: ENCODING, ...change });
}

/** A specification of Vega itself. */
function vega(change: object): string {
  return JSON.stringify({
    $schema: "https://vega.github.io/schema/vega/v6.json",
    width: 200,
    height: 100,
    data: [{ name: "t", values: ROWS }],
    marks: [{ type: "rect", from: { data: "t" }, encode: { enter: { width: { value: 9 }, height: { value: 9 } } } }],
    ...change,
  });
}

const RUN = 'window.pwned = 1';
const deep = (levels: number): object => (levels === 0 ? { mark: "bar", encoding: ENCODING } : { layer: [deep(levels - 1)] });

export interface HostileChart {
  name: string;
  spec: string;
  /** What the checks make of it; `accepted` where nothing is attacked but the look. */
  outcome: "refused" | "large" | "invalid" | "accepted";
}

export const HOSTILE_CHARTS: HostileChart[] = [
  // addresses
  { name: "data of another host", spec: lite({ data: { url: `${HOST}/d.json` } }), outcome: "refused" },
  { name: "data of this host", spec: lite({ data: { url: "/v1/users/me" } }), outcome: "refused" },
  { name: "data in a data: address", spec: lite({ data: { url: "data:application/json,[{}]" } }), outcome: "refused" },
  { name: "data with a format", spec: lite({ data: { values: ROWS, format: { type: "csv" } } }), outcome: "refused" },
  { name: "named data sets", spec: lite({ datasets: { x: ROWS } }), outcome: "refused" },
  { name: "a lookup in other data", spec: lite({ transform: [{ lookup: "name", from: { data: { url: HOST }, key: "name", fields: ["x"] } }] }), outcome: "refused" },
  { name: "a map of another host", spec: lite({ mark: "geoshape", data: { url: `${HOST}/w.json`, format: { type: "topojson", feature: "x" } } }), outcome: "refused" },
  { name: "a projection", spec: lite({ projection: { type: "mercator", fit: { signal: "data('t')" } } }), outcome: "refused" },
  { name: "a colour that is an address", spec: lite({ config: { background: `url(${HOST}/b.svg#x)` } }), outcome: "refused" },
  { name: "a range of colours with an address", spec: lite({ encoding: { ...ENCODING, color: { field: "name", type: "nominal", scale: { range: [`url("${HOST}/c.svg#x")`] } } } }), outcome: "refused" },
  { name: "a font that is a rule", spec: lite({ config: { font: `x; src: url(${HOST}/f.woff)` } }), outcome: "refused" },
  // links and images
  { name: "a mark that links", spec: lite({ mark: { type: "bar", href: `${HOST}/x` } }), outcome: "refused" },
  { name: "a mark that runs a script", spec: lite({ mark: { type: "bar", href: `javascript:${RUN}` } }), outcome: "refused" },
  { name: "a channel of links", spec: lite({ encoding: { ...ENCODING, href: { field: "name" } } }), outcome: "refused" },
  { name: "an image mark", spec: lite({ mark: { type: "image", url: `${HOST}/i.png` } }), outcome: "refused" },
  { name: "a channel of images", spec: lite({ mark: "image", encoding: { ...ENCODING, url: { value: `${HOST}/i.png` } } }), outcome: "refused" },
  { name: "a tooltip with markup", spec: lite({ encoding: { ...ENCODING, tooltip: { value: `<img src=x onerror="${RUN}">` } } }), outcome: "refused" },
  // expressions
  { name: "an expression of constructors", spec: lite({ transform: [{ calculate: `constructor.constructor("${RUN}")()`, as: "z" }] }), outcome: "refused" },
  { name: "a filter that calls", spec: lite({ transform: [{ filter: `datum.name.constructor.constructor("${RUN}")()` }] }), outcome: "refused" },
  { name: "a label by an expression", spec: lite({ encoding: { ...ENCODING, x: { ...ENCODING.x, axis: { labelExpr: `toString.constructor("${RUN}")()` } } } }), outcome: "refused" },
  { name: "a value by an expression", spec: lite({ mark: { type: "bar", opacity: { expr: `[].constructor.constructor("${RUN}")()` } } }), outcome: "refused" },
  { name: "a width by a signal", spec: lite({ width: { signal: `open("${HOST}")` } }), outcome: "refused" },
  { name: "a condition with a test", spec: lite({ encoding: { ...ENCODING, color: { condition: { test: RUN, value: "red" }, value: "blue" } } }), outcome: "refused" },
  { name: "parameters bound to inputs", spec: lite({ params: [{ name: "p", value: 1, bind: { input: "text", element: "body" } }] }), outcome: "refused" },
  { name: "a field that is a path", spec: lite({ encoding: { ...ENCODING, x: { field: `name'] || ${RUN} || ['`, type: "nominal" } } }), outcome: "refused" },
  { name: "options for an embedding page", spec: lite({ usermeta: { embedOptions: { patch: `${HOST}/p.json`, loader: { baseURL: HOST } } } }), outcome: "refused" },
  { name: "a prototype as a key", spec: lite({}).replace('"mark"', '"__proto__": {"polluted": 1}, "mark"'), outcome: "refused" },
  { name: "a column named as a prototype", spec: lite({}).replace('"name":"a"', '"__proto__":"a"'), outcome: "refused" },
  // Vega itself
  { name: "Vega with data of another host", spec: vega({ data: [{ name: "t", url: `${HOST}/d.json` }] }), outcome: "refused" },
  { name: "Vega with a signal that loads", spec: vega({ signals: [{ name: "s", on: [{ events: "timer{10}", update: `load("${HOST}")` }] }] }), outcome: "refused" },
  { name: "Vega with a signal of constructors", spec: vega({ signals: [{ name: "s", update: `constructor.constructor("${RUN}")()` }] }), outcome: "refused" },
  { name: "Vega with an image", spec: vega({ marks: [{ type: "image", encode: { enter: { url: { value: `${HOST}/i.png` } } } }] }), outcome: "refused" },
  { name: "Vega with a sequence without end", spec: vega({ data: [{ name: "t", transform: [{ type: "sequence", start: 0, stop: 1e12 }] }] }), outcome: "refused" },
  // size and time
  { name: "bins without end", spec: lite({ encoding: { ...ENCODING, x: { field: "value", type: "quantitative", bin: { binned: true, step: 1e-12 } } } }), outcome: "large" },
  { name: "a sequence of ticks without end", spec: lite({ encoding: { ...ENCODING, y: { ...ENCODING.y, axis: { tickCount: 1e9 } } } }), outcome: "refused" },
  { name: "a format of a billion digits", spec: lite({ encoding: { ...ENCODING, y: { ...ENCODING.y, axis: { format: "0999999999d" } } } }), outcome: "refused" },
  { name: "a picture of a million pixels a side", spec: lite({ width: 1e6, height: 1e6 }), outcome: "large" },
  { name: "bars a mile high", spec: lite({ height: { step: 1e5 }, encoding: { y: ENCODING.x, x: ENCODING.y } }), outcome: "large" },
  { name: "layers in layers", spec: lite({ mark: undefined, layer: [deep(200)] }), outcome: "large" },
  { name: "lists in lists", spec: lite({ encoding: { ...ENCODING, x: { ...ENCODING.x, sort: JSON.parse("[".repeat(3000) + "]".repeat(3000)) as object } } }), outcome: "large" },
  { name: "a hundred thousand rows", spec: lite({ data: { values: Array.from({ length: 100_000 }, () => ({})) } }), outcome: "large" },
  { name: "a cell of half a megabyte", spec: lite({ data: { values: [{ name: "x".repeat(500_000), value: 1 }] } }), outcome: "large" },
  { name: "more than is read", spec: lite({ description: "x".repeat(1024 * 1024) }), outcome: "large" },
  { name: "numbers beyond all numbers", spec: lite({}).replace('"value":1', '"value":1e999'), outcome: "large" },
  { name: "what is no JSON", spec: "{", outcome: "invalid" },
  { name: "what is no map", spec: "[]", outcome: "invalid" },
  { name: "an encoding that means nothing", spec: lite({ encoding: { x: { field: "name", type: "nothing" } }, mark: "arc", data: { values: [{ name: null }] } }), outcome: "accepted" },
  // mere text, which is drawn as text
  {
    name: "markup in names",
    spec: lite({
      title: { text: `</text></svg><script>${RUN}</script>` },
      data: { values: [{ name: `<image href="${HOST}/i.png"/>`, value: 1 }, { name: `"><script>${RUN}</script>`, value: 2 }] },
    }),
    outcome: "accepted",
  },
];
