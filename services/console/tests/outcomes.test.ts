import { expect, test } from "vitest";

import type { Outcome } from "../src/api/types";
import { de } from "../src/messages/de";
import { en } from "../src/messages/en";
import { shownOutcome, toneOf } from "../src/run/status";

// As in docs/reference/outcomes.md.
const TABLE: [Outcome | undefined, string | undefined, string | undefined][] = [
  [undefined, undefined, undefined],
  ["OUTCOME_UNSPECIFIED", undefined, undefined],
  ["OUTCOME_ANSWERED", "good", undefined],
  ["OUTCOME_EMPTY", "good", "nothing matches"],
  ["OUTCOME_NOT_IN_SOURCE", "part", "not in the source"],
  ["OUTCOME_PARTLY", "part", "in part"],
  ["OUTCOME_PREMISE_REFUTED", "good", "premise refuted"],
  ["OUTCOME_DENIED", "part", "denied"],
  ["OUTCOME_EXPIRED", "part", "not decided in time"],
  ["OUTCOME_SKIPPED", "part", "skipped"],
  ["OUTCOME_CUT_OFF", "part", "cut off"],
  ["OUTCOME_OF_A_NEWER_GATEWAY" as Outcome, undefined, undefined],
];

test("each outcome has its tone and its words", () => {
  const found = TABLE.map(([outcome]) => {
    const shown = shownOutcome(outcome);
    return [outcome, toneOf(outcome), shown && en.outcomes[shown]];
  });
  expect(found).toEqual(TABLE);
  expect(Object.keys(de.outcomes)).toEqual(Object.keys(en.outcomes));
});
