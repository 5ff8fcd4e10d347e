/** Times, durations and numbers for reading, as the user's locale writes them. */
import { shownLocale } from "../settings/preferences";

/** Seconds of a duration of the API, such as "0.433911s". */
export function seconds(duration: string | undefined): number | undefined {
  const found = Number(duration?.replace(/s$/, ""));
  return duration === undefined || Number.isNaN(found) ? undefined : found;
}

export function shownSeconds(value: number): string {
  const isShort = value < 1;
  const unit = isShort ? "millisecond" : value < 90 ? "second" : "minute";
  const amount = isShort ? value * 1000 : value < 90 ? value : value / 60;
  return new Intl.NumberFormat(shownLocale(), {
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
  return new Intl.DateTimeFormat(shownLocale(), { dateStyle: "medium", timeStyle: "short" }).format(
    new Date(time),
  );
}

/** A number for reading; whole numbers of the API come as text, and keep every digit. */
export function shownNumber(value: number | string | bigint): string {
  return new Intl.NumberFormat(shownLocale()).format(typeof value === "string" ? BigInt(value) : value);
}

const BYTES_A_UNIT = 1024;

/** A size, such as "1.5 MB". */
export function shownBytes(value: number | string): string {
  const units = ["byte", "kilobyte", "megabyte", "gigabyte", "terabyte"];
  let amount = Number(value);
  let at = 0;
  while (amount >= BYTES_A_UNIT && at < units.length - 1) {
    amount /= BYTES_A_UNIT;
    at += 1;
  }
  const maximumFractionDigits = at === 0 || amount >= 100 ? 0 : 1;
  return new Intl.NumberFormat(shownLocale(), {
    style: "unit",
    unit: units[at] ?? "byte",
    unitDisplay: at === 0 ? "long" : "short",
    maximumFractionDigits,
  }).format(amount);
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
