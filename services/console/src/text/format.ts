/** Times and durations for reading, as the browser's language writes them. */

/** Seconds of a duration of the API, such as "0.433911s". */
export function seconds(duration: string | undefined): number | undefined {
  const found = Number(duration?.replace(/s$/, ""));
  return duration === undefined || Number.isNaN(found) ? undefined : found;
}

export function shownSeconds(value: number): string {
  const isShort = value < 1;
  const unit = isShort ? "millisecond" : value < 90 ? "second" : "minute";
  const amount = isShort ? value * 1000 : value < 90 ? value : value / 60;
  return new Intl.NumberFormat(undefined, {
    style: "unit",
    unit,
    maximumFractionDigits: isShort || amount >= 10 ? 0 : 1,
  }).format(amount);
}

/** Time between two moments in seconds; undefined if one is not known. */
export function between(start: string | undefined, end: string | undefined): number | undefined {
  if (start === undefined || end === undefined) return undefined;
  return Math.max(0, (Date.parse(end) - Date.parse(start)) / 1000);
}

export function shownTime(time: string | undefined): string {
  if (time === undefined) return "";
  return new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" }).format(
    new Date(time),
  );
}

/** What is left of a time, as "1:05"; 0:00 once it is over. */
export function shownCountdown(leftMs: number): string {
  const left = Math.max(0, Math.ceil(leftMs / 1000));
  const hours = Math.floor(left / 3600);
  const minutes = Math.floor((left % 3600) / 60);
  const tail = String(left % 60).padStart(2, "0");
  return hours > 0
    ? `${String(hours)}:${String(minutes).padStart(2, "0")}:${tail}`
    : `${String(minutes)}:${tail}`;
}
