/** Names under which files are saved. */
import { reveal } from "./invisible";

const LONGEST = 150;
const ENDING = 24;

/** A name that looks like what it is on any system: no folders, no hidden characters, its ending kept. */
export function safeFileName(name: string): string {
  const seen = reveal(name)
    .map((span) => (span.isHidden ? "_" : span.text))
    .join("")
    .replace(/[/\\:*?"<>|\n\t]/g, "_")
    .replace(/^[.\s]+|[.\s]+$/g, "");
  if (!seen) return "file";
  const characters = [...seen];
  if (characters.length <= LONGEST) return seen;
  return `${characters.slice(0, LONGEST - ENDING - 1).join("")}…${characters.slice(-ENDING).join("")}`;
}
