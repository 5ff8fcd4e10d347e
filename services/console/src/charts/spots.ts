/** Where the marks of a drawn chart are, and the values that each of them shows. */
import type { View } from "vega";

/** A mark of a picture, in pixels from its upper left corner. */
export interface Spot {
  left: number;
  top: number;
  right: number;
  bottom: number;
  /** A slice of a pie: its centre, radii and angles, clockwise from above. */
  slice?: { x: number; y: number; inner: number; outer: number; start: number; end: number };
  /** Titles with values, as Vega writes them. */
  values: [title: string, value: string][];
}

/** Parts of Vega's scene that are read here. */
interface Item {
  x?: number;
  y?: number;
  items?: (Item | Mark)[];
  bounds?: { x1: number; y1: number; x2: number; y2: number };
  tooltip?: unknown;
  startAngle?: number;
  endAngle?: number;
  innerRadius?: number;
  outerRadius?: number;
}

interface Mark {
  marktype: string;
  role?: string;
  items: Item[];
}

const MOST_SPOTS = 5000;
const MOST_VALUES = 8;
const MOST_CHARACTERS = 200;
/** Half of the width of a point on a line, as the pointer finds it. */
const POINT_PX = 4;
/** Farthest that a point is from the pointer which shows it. */
const NEAR_PX = 24;

/** The marks of a view that has been drawn, those that lie above last; fields are named by their titles. */
export function spotsOf(view: View, titles: ReadonlyMap<string, string>): Spot[] {
  const spots: Spot[] = [];
  const [left, top] = originOf(view);
  const { root } = view.scenegraph() as unknown as { root: Mark };
  for (const group of root.items) collect(group, left, top, spots);
  return spots.map((spot) => ({
    ...spot,
    values: spot.values.map(([name, value]) => [titles.get(name) ?? name, value]),
  }));
}

function originOf(view: View): [number, number] {
  const padding = view.padding();
  const origin = (view as unknown as { origin: () => [number, number] }).origin();
  const of = (side: "left" | "top") => (typeof padding === "number" ? padding : (padding[side] ?? 0));
  return [of("left") + origin[0], of("top") + origin[1]];
}

function collect(group: Item, left: number, top: number, spots: Spot[]): void {
  const [x, y] = [left + (group.x ?? 0), top + (group.y ?? 0)];
  for (const mark of (group.items ?? []) as Mark[]) {
    if (spots.length >= MOST_SPOTS) return;
    if (mark.marktype === "group") {
      for (const inner of mark.items) collect(inner, x, y, spots);
    } else if (mark.marktype !== "text") {
      for (const item of mark.items) {
        const spot = spotOf(item, mark.marktype, x, y);
        if (spot && spots.length < MOST_SPOTS) spots.push(spot);
      }
    }
  }
}

function spotOf(item: Item, kind: string, left: number, top: number): Spot | undefined {
  const values = valuesOf(item.tooltip);
  if (values.length === 0) return undefined;
  const [x, y] = [left + (item.x ?? 0), top + (item.y ?? 0)];
  if (["line", "area", "trail"].includes(kind)) {
    return { left: x - POINT_PX, right: x + POINT_PX, top: y - POINT_PX, bottom: y + POINT_PX, values };
  }
  if (!item.bounds) return undefined;
  const { x1, y1, x2, y2 } = item.bounds;
  const box = { left: left + x1, right: left + x2, top: top + y1, bottom: top + y2, values };
  if (kind !== "arc") return box;
  const { startAngle = 0, endAngle = 0, innerRadius = 0, outerRadius = 0 } = item;
  return { ...box, slice: { x, y, inner: innerRadius, outer: outerRadius, start: startAngle, end: endAngle } };
}

/** What Vega would show: an object of titles with texts. */
function valuesOf(tooltip: unknown): [string, string][] {
  if (typeof tooltip !== "object" || tooltip === null) return [];
  return Object.entries(tooltip)
    .filter((each): each is [string, string | number] => ["string", "number"].includes(typeof each[1]))
    .slice(0, MOST_VALUES)
    .map(([title, value]) => [title.slice(0, MOST_CHARACTERS), String(value).slice(0, MOST_CHARACTERS)]);
}

/** The mark at a point of the picture, the uppermost; else the nearest one that is near; else none. */
export function spotAt(spots: readonly Spot[], x: number, y: number): Spot | undefined {
  const over = spots.findLast((spot) => (spot.slice ? isInSlice(spot.slice, x, y) : distance(spot, x, y) === 0));
  if (over) return over;
  let nearest: Spot | undefined;
  let least = NEAR_PX;
  for (const spot of spots) {
    if (spot.slice) continue;
    const away = distance(spot, x, y);
    if (away < least) [nearest, least] = [spot, away];
  }
  return nearest;
}

function distance({ left, right, top, bottom }: Spot, x: number, y: number): number {
  return Math.hypot(Math.max(left - x, 0, x - right), Math.max(top - y, 0, y - bottom));
}

function isInSlice({ x, y, inner, outer, start, end }: NonNullable<Spot["slice"]>, px: number, py: number): boolean {
  const radius = Math.hypot(px - x, py - y);
  if (radius < inner || radius > outer) return false;
  const turn = 2 * Math.PI;
  const angle = Math.atan2(px - x, y - py);
  const [from, to] = [Math.min(start, end), Math.max(start, end)];
  return [angle - turn, angle, angle + turn].some((each) => each >= from && each <= to);
}
