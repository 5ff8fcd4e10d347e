/** Sends one file as a form. `fetch` does not tell how much of a body was sent; `XMLHttpRequest` does. */
import { apiError } from "../api/errors";
import { session } from "../api/session";

/** The file was moved, changed or deleted on this machine after it was chosen. */
export class UnreadableFile extends Error {
  override readonly name = "UnreadableFile";
}

export type Sending<Result> = (
  path: string,
  file: File,
  onSent: (share: number) => void,
  signal: AbortSignal,
) => Promise<Result>;

/**
 * Resolves with the server's answer.
 *
 * @throws ApiError it was refused; TypeError there is no connection; UnreadableFile the file is not there.
 */
export async function sendFile<Result>(
  path: string,
  file: File,
  onSent: (share: number) => void,
  signal: AbortSignal,
): Promise<Result> {
  const response = await attempt(path, file, onSent, signal);
  if (response.status !== 401) return answerOf(response);
  await session.signInAgain(signal);
  return answerOf(await attempt(path, file, onSent, signal));
}

async function answerOf<Result>(response: globalThis.Response): Promise<Result> {
  const body: unknown = await response.json().catch(() => undefined);
  if (!response.ok) throw apiError(response, body);
  return body as Result;
}

async function attempt(
  path: string,
  file: File,
  onSent: (share: number) => void,
  signal: AbortSignal,
): Promise<globalThis.Response> {
  try {
    return await post(path, file, onSent, signal);
  } catch (error) {
    if (!signal.aborted && !(await isReadable(file))) throw new UnreadableFile(file.name);
    throw error;
  }
}

function post(
  path: string,
  file: File,
  onSent: (share: number) => void,
  signal: AbortSignal,
): Promise<globalThis.Response> {
  return new Promise((resolve, reject) => {
    const call = new XMLHttpRequest();
    const stop = () => call.abort();
    const settle = (settled: () => void) => {
      signal.removeEventListener("abort", stop);
      settled();
    };
    call.open("POST", path);
    call.setRequestHeader("Accept", "application/json");
    call.setRequestHeader("Bos-Browser", "1");
    call.upload.onprogress = (event) => {
      if (event.lengthComputable && event.total > 0) onSent(event.loaded / event.total);
    };
    call.onload = () =>
      settle(() => {
        const wait = call.getResponseHeader("Retry-After");
        const headers = wait === null ? {} : { "Retry-After": wait };
        resolve(new Response(call.responseText, { status: call.status, headers }));
      });
    call.onerror = () => settle(() => reject(new TypeError("no connection")));
    call.onabort = () => settle(() => reject(new DOMException("cancelled", "AbortError")));
    signal.addEventListener("abort", stop);
    const form = new FormData();
    form.append("file", file, file.name);
    call.send(form);
  });
}

async function isReadable(file: File): Promise<boolean> {
  try {
    await file.slice(0, 1).arrayBuffer();
    return true;
  } catch {
    return false;
  }
}
