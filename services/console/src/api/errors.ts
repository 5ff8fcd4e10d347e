/** Errors of REST: one shape, with a stable reason. */

interface ErrorBody {
  error?: { code?: number; message?: string; details?: Record<string, unknown>[] };
}

/** A call that REST refused or could not answer. `status` is the HTTP status; 0: no connection. */
export class ApiError extends Error {
  readonly status: number;
  readonly reason: string;
  readonly retryAfterS: number | undefined;

  constructor(status: number, message: string, reason: string, retryAfterS?: number) {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.reason = reason;
    this.retryAfterS = retryAfterS;
  }
}

/** Builds the error of a response from its body, which may be anything if a proxy answered. */
export function apiError(response: globalThis.Response, body: unknown): ApiError {
  const { error } = (typeof body === "object" && body !== null ? body : {}) as ErrorBody;
  const reasons = (error?.details ?? []).map((each) => each["reason"]);
  const reason = reasons.find((each): each is string => typeof each === "string") ?? "";
  const wait = Number(response.headers.get("Retry-After") ?? "");
  return new ApiError(
    response.status,
    error?.message ?? `HTTP ${String(response.status)}`,
    reason,
    Number.isFinite(wait) && wait > 0 ? wait : undefined,
  );
}

/** Whether the service that a call needs is no part of this installation: REST has no such path then. */
export function isNotServed(error: unknown): boolean {
  return error instanceof ApiError && error.reason === "PATH_NOT_FOUND";
}

/** Whether repeating the same call later may help. */
export function isTransient(error: unknown): boolean {
  if (!(error instanceof ApiError)) return error instanceof TypeError; // fetch: no connection
  return error.status === 429 || error.status >= 500;
}
