/** The structure of a report: its answer's text by headings, each with the charts of its section. */
import type { ReportSection } from "../api/types";
import { markdownBlocks } from "../text/blocks";

/** A piece of an answer's text from one heading to the next; the first one may have no heading. */
export interface AnswerPart {
  heading: string;
  /** Markdown, heading included. */
  text: string;
}

const HEADING = /^ {0,3}#{1,2}[ \t]+(.+?)[ \t#]*(\n|$)/;

/** Splits an answer at its headings of the first two levels; joined, the parts are the answer again. */
export function answerParts(text: string): AnswerPart[] {
  const parts: AnswerPart[] = [];
  for (const block of markdownBlocks(text)) {
    const heading = HEADING.exec(block)?.[1];
    const last = parts.at(-1);
    if (heading !== undefined || last === undefined) parts.push({ heading: heading ?? "", text: block });
    else last.text += block;
  }
  return parts;
}

/** Sections by their places in the answer's parts; those that the answer has no heading for are `others`. */
export function placedSections(
  parts: AnswerPart[],
  sections: ReportSection[],
): { placed: Map<number, ReportSection>; others: ReportSection[] } {
  const placed = new Map<number, ReportSection>();
  const others = sections.filter((section) => {
    const place = parts.findIndex(
      (part, index) => !placed.has(index) && part.heading !== "" && key(part.heading) === key(section.heading),
    );
    if (place >= 0) placed.set(place, section);
    return place < 0;
  });
  return { placed, others };
}

/** Highlights that the answer's text does not say already. */
export function furtherHighlights(text: string, highlights: string[]): string[] {
  const said = plain(text);
  return highlights.filter((highlight) => !said.includes(plain(highlight.replace(/…$/, ""))));
}

function key(heading: string): string {
  return plain(heading).toLowerCase().replace(/[.:]+$/, "");
}

function plain(text: string): string {
  return text.replace(/\*\*|__/g, "").replace(/\s+/g, " ").trim();
}
