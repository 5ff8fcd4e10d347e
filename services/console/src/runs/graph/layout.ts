/** Where the steps of one plan stand, and how the lines between them run. Pure. */
import { Graph, layout } from "@dagrejs/dagre";

import type { StepState } from "../../run/state";

export const NODE_WIDTH = 188;
export const NODE_HEIGHT = 58;
const MARGIN = 14;

export interface Point {
  x: number;
  y: number;
}

export interface PlacedStep extends Point {
  step: StepState;
  /** Column of the plan, from 0: what is in one may run at the same time. */
  rank: number;
}

export interface Edge {
  from: string;
  to: string;
  points: Point[];
}

export interface Layout {
  /** In the order of reading: by column, then downwards. */
  nodes: PlacedStep[];
  edges: Edge[];
  width: number;
  height: number;
}

/** Lays out the steps of one revision from left to right. Dependencies that are not among them are left out. */
export function layoutOf(steps: StepState[]): Layout {
  const graph = new Graph();
  graph.setGraph({ rankdir: "LR", nodesep: 16, ranksep: 46, marginx: MARGIN, marginy: MARGIN });
  graph.setDefaultEdgeLabel(() => ({}));
  // Nodes are named by their number: a step may be called anything, `constructor` for one.
  const numbers = new Map(steps.map((step, index) => [step.stepId, String(index)]));
  for (const name of numbers.values()) graph.setNode(name, { width: NODE_WIDTH, height: NODE_HEIGHT });
  for (const [index, step] of steps.entries()) {
    for (const before of step.dependsOn) {
      const from = numbers.get(before);
      if (from !== undefined) graph.setEdge(from, String(index));
    }
  }
  layout(graph);
  const placed = steps.map((step, index) => {
    const { x, y } = graph.node(String(index)) as Point;
    return { step, x: x - NODE_WIDTH / 2, y: y - NODE_HEIGHT / 2 };
  });
  const columns = [...new Set(placed.map(({ x }) => x))].sort((one, other) => one - other);
  const nodes = placed
    .map((each) => ({ ...each, rank: columns.indexOf(each.x) }))
    .sort((one, other) => one.rank - other.rank || one.y - other.y);
  const edges = graph.edges().map(({ v, w }) => {
    const { points = [] } = graph.edge(v, w) as { points?: Point[] };
    const name = (node: string) => steps[Number(node)]?.stepId ?? "";
    return { from: name(v), to: name(w), points };
  });
  const { width = 0, height = 0 } = graph.graph() as { width?: number; height?: number };
  return { nodes, edges, width, height };
}

/** A smooth line through the points of an edge, as the `d` of a path. */
export function pathOf(points: Point[]): string {
  const [first, ...rest] = points;
  if (!first) return "";
  let d = `M${String(first.x)},${String(first.y)}`;
  let last = first;
  for (const point of rest) {
    const middle = (last.x + point.x) / 2;
    d += ` C${String(middle)},${String(last.y)} ${String(middle)},${String(point.y)} ${String(point.x)},${String(point.y)}`;
    last = point;
  }
  return d;
}

export type Direction = "left" | "right" | "up" | "down";

/** The step that an arrow key goes to: along an edge, or within the column; the same if there is none. */
export function neighbour({ nodes, edges }: Layout, stepId: string, direction: Direction): string {
  const from = nodes.find((node) => node.step.stepId === stepId);
  if (!from) return stepId;
  const linked = new Set(
    edges.flatMap((edge) => {
      if (direction === "right") return edge.from === stepId ? [edge.to] : [];
      return direction === "left" && edge.to === stepId ? [edge.from] : [];
    }),
  );
  const isSideways = direction === "left" || direction === "right";
  const forward = direction === "right" || direction === "down" ? 1 : -1;
  const candidates = nodes.filter((node) =>
    isSideways
      ? linked.has(node.step.stepId)
      : node.rank === from.rank && (node.y - from.y) * forward > 0,
  );
  const distance = (node: PlacedStep) => Math.abs(node.y - from.y) + Math.abs(node.x - from.x) / 1000;
  return candidates.sort((one, other) => distance(one) - distance(other))[0]?.step.stepId ?? stepId;
}
