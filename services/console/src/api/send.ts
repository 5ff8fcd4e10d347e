import { observeServerTime } from "./clock";

const CSRF_HEADER = "Bos-Browser";

/** Sends a request once, in any state of the session. */
export async function send(input: Request): Promise<globalThis.Response> {
  if (input.method !== "GET" && input.method !== "HEAD") input.headers.set(CSRF_HEADER, "1");
  const response = await fetch(input);
  observeServerTime(response.headers.get("Date"));
  return response;
}
