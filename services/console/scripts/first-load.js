// The first load of the console, compressed, held against its limit: what index.html names, and what
// those scripts import without being asked.
import { readFileSync } from "node:fs";
import { gzipSync } from "node:zlib";

const LIMIT_BYTES = 300 * 1024;
const dist = new URL("../dist/", import.meta.url);
const html = readFileSync(new URL("index.html", dist), "utf8");
const names = [...html.matchAll(/(?:src|href)="\/([^"]+)"/g)].map((match) => match[1]);
const scripts = names.filter((name) => name.endsWith(".js"));
for (const name of scripts) {
  const source = readFileSync(new URL(name, dist), "utf8");
  for (const [, imported] of source.matchAll(/(?:^|[;\n])import(?:[^"'()]*from)?["']\.\/([^"']+)["']/g)) {
    const path = `assets/${imported}`;
    if (!names.includes(path)) names.push(path);
  }
}
const bytes = names
  .map((name) => gzipSync(readFileSync(new URL(name, dist)), { level: 9 }).length)
  .reduce((sum, length) => sum + length, gzipSync(html).length);
const shown = `${(bytes / 1024).toFixed(0)} KB compressed, limit ${String(LIMIT_BYTES / 1024)} KB`;
if (bytes > LIMIT_BYTES) {
  console.error(`First load of the console: ${shown}. Load what is not needed at once lazily.`);
  process.exit(1);
}
console.log(`First load of the console: ${shown}.`);
