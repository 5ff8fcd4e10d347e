/** Files of a run as the page reads and saves them. */
import { queryOptions } from "@tanstack/react-query";

import { apiError } from "../api/errors";
import { request } from "../api/http";
import type { Chart } from "../api/types";
import type { Picture } from "./draw";
import { MAX_SPEC_BYTES, readSpec } from "./spec";

/** The specification of a chart: its text, and what the checks say of it. */
export const chartFile = (runId: string, chart: Chart) =>
  queryOptions({
    queryKey: ["chart", runId, chart.specification?.digest],
    queryFn: async ({ signal }) => {
      const file = chart.specification;
      if (!file) return { content: "", read: { problem: { kind: "invalid" as const } } };
      if (Number(file.size_bytes) > MAX_SPEC_BYTES) {
        return { content: undefined, read: { problem: { kind: "large" as const } } };
      }
      const response = await request(new Request(fileAddress(runId, file.digest), { signal }));
      if (!response.ok) throw apiError(response, await response.json().catch(() => undefined));
      const content = await response.text();
      return { content, read: readSpec(content) };
    },
    staleTime: Infinity, // its address is a digest of it
  });

/** Address of a file of a run, which REST sends to be saved. */
export function fileAddress(runId: string, digest: string): string {
  return `/v1/runs/${encodeURIComponent(runId)}/files/${encodeURIComponent(digest)}`;
}

const SCALE = 2;

/** A picture as PNG, at twice its size. Rejects if the browser cannot draw it. */
export async function toPng({ svg, width, height }: Picture): Promise<Blob> {
  const address = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
  try {
    const image = new Image();
    image.src = address;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = Math.ceil(width * SCALE);
    canvas.height = Math.ceil(height * SCALE);
    canvas.getContext("2d")?.drawImage(image, 0, 0, canvas.width, canvas.height);
    return await new Promise((resolve, reject) =>
      canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("no picture"))), "image/png"),
    );
  } finally {
    URL.revokeObjectURL(address);
  }
}
