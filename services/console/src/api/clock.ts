/** The server's clock, as its responses show it: countdowns go by it, not by this machine's. */

let skewMs: number | undefined;

/** Takes note of a `Date` header. Its resolution is a second, so only larger differences count. */
export function observeServerTime(date: string | null, nowMs = Date.now()): void {
  const at = date === null ? NaN : Date.parse(date);
  if (Number.isNaN(at)) return;
  const skew = at - nowMs;
  skewMs = Math.abs(skew) < 1500 ? 0 : skew;
}

/** The server's time in milliseconds since 1970. */
export function serverNowMs(nowMs = Date.now()): number {
  return nowMs + (skewMs ?? 0);
}
