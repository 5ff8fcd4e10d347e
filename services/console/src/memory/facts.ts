/** What is remembered, fact by fact, and as the whole that the API takes. */
import type { components } from "../api/schema";

export type Fact = components["schemas"]["Fact"];
export type Memory = components["schemas"]["LongTermMemory"];

export const ABOUT = ["user_name", "company_name", "job_title", "recent_projects"] as const;
export const PREFERENCES = ["tone", "detail_level", "language"] as const;
export type FactField = (typeof ABOUT)[number] | (typeof PREFERENCES)[number];

export const LONGEST_FACT = 200;
export const MOST_PROJECTS = 10;

/** A change of one fact: `before` is its value, "" to add one; `after` is "" to forget it. */
export interface Change {
  field: FactField;
  before: string;
  after: string;
}

/** The memory with one fact changed. Whether it was confirmed stays as it is. */
export function changed(memory: Memory, { field, before, after }: Change): Memory {
  const critical = memory.critical ?? { user_name: "", company_name: "", job_title: "", recent_projects: [] };
  const preferences = memory.preferences ?? { tone: "", detail_level: "", language: "" };
  if (field === "recent_projects") {
    const projects = critical.recent_projects.map((each) => (each === before ? after : each));
    const all = before === "" ? [...projects, after] : projects;
    return { ...memory, critical: { ...critical, recent_projects: all.filter(Boolean) } };
  }
  return field === "tone" || field === "detail_level" || field === "language"
    ? { ...memory, preferences: { ...preferences, [field]: after } }
    : { ...memory, critical: { ...critical, [field]: after } };
}
