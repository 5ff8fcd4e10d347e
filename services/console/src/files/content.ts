/** Contents of files: read with the session, shown as what they are, saved under a name that says it. */
import { apiError } from "../api/errors";
import { request } from "../api/http";
import { safeFileName } from "../text/fileName";

/** Where a file's content is. */
export interface FileContent {
  address: string;
  name: string;
  mediaType: string;
  sizeBytes: number;
}

export type PreviewKind = "image" | "table" | "text" | "none";

const LARGEST_IMAGE = 20_000_000;
const LARGEST_TEXT = 5_000_000;
/** What an image element draws and nothing of which runs; SVG is text here. */
const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const TEXTS = new Set([
  "application/json",
  "application/xml",
  "application/yaml",
  "application/x-yaml",
  "application/javascript",
  "application/sql",
  "image/svg+xml",
]);

/** How a file may be shown; its media type was found from its content by the server. */
export function previewKind({ mediaType }: FileContent): PreviewKind {
  const type = (mediaType.split(";")[0] ?? "").trim().toLowerCase();
  if (IMAGES.has(type)) return "image";
  if (type === "text/csv" || type === "text/tab-separated-values") return "table";
  if (type.startsWith("text/") || TEXTS.has(type) || type.endsWith("+json") || type.endsWith("+xml")) return "text";
  return "none";
}

export function isTooLarge(file: FileContent): boolean {
  return file.sizeBytes > (previewKind(file) === "image" ? LARGEST_IMAGE : LARGEST_TEXT);
}

/** The whole content. Raises `ApiError` if it is refused. */
export async function readContent(file: FileContent, signal?: AbortSignal): Promise<Blob> {
  const response = await request(new Request(file.address, signal ? { signal } : {}));
  if (!response.ok) throw apiError(response, await response.json().catch(() => undefined));
  const content = await response.arrayBuffer();
  const type = (file.mediaType.split(";")[0] ?? "").trim().toLowerCase();
  // Never a type that a browser runs, wherever the address of the blob may end up.
  return new Blob([content], { type: IMAGES.has(type) ? type : "application/octet-stream" });
}

/** Saves a file. Raises `ApiError` if it is refused. */
export async function download(file: FileContent): Promise<void> {
  const address = URL.createObjectURL(await readContent(file));
  const link = document.createElement("a");
  link.href = address;
  link.download = safeFileName(file.name);
  link.click();
  URL.revokeObjectURL(address);
}

export function workspaceAddress(name: string, version?: number): string {
  const path = `/v1/files/${encodeURIComponent(name)}`;
  return version === undefined ? path : `${path}?version=${String(version)}`;
}

export function runAddress(runId: string, digest: string): string {
  return `/v1/runs/${encodeURIComponent(runId)}/files/${encodeURIComponent(digest.replace(/^sha256:/, ""))}`;
}
