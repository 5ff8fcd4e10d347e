/** Sizes for reading. */

const UNITS = ["byte", "kilobyte", "megabyte", "gigabyte"] as const;

/** A size as "12 kB"; int64 values of the API are texts. */
export function shownBytes(bytes: number | string): string {
  let amount = Number(bytes);
  let unit = 0;
  while (amount >= 1000 && unit < UNITS.length - 1) {
    amount /= 1000;
    unit += 1;
  }
  const digits = amount < 10 && unit > 0 ? 1 : 0;
  return new Intl.NumberFormat(undefined, {
    style: "unit",
    unit: UNITS[unit] ?? "byte",
    unitDisplay: unit === 0 ? "long" : "short",
    maximumFractionDigits: digits,
  }).format(amount);
}
