/** SQL of a step: one tab for each dialect, the tables it reads, and what the guard said. */
import { useState } from "react";

import { useText } from "../../messages/useText";
import type { StepState } from "../../run/state";
import { Literal } from "../../text/Literal";
import { Button, Icon } from "../../ui/controls";
import { Verification } from "../../verified/Verification";
import styles from "../runs.module.css";
import { Listing } from "./Listing";
import { DIALECTS, verdicts, type Dialect, type Verdict } from "./sections";

interface Props {
  runId: string;
  step: StepState;
  /** Queries of runs that have ended can be verified. */
  hasEnded: boolean;
}

export function Queries({ runId, step, hasEnded }: Props) {
  const text = useText();
  const data: Record<string, unknown> = { ...step.result?.partial_data, ...step.result?.data };
  const known = DIALECTS.filter((name) => typeof data[name] === "string" && data[name] !== "");
  const [chosen, choose] = useState<Dialect>("sql");
  const shown = known.includes(chosen) ? chosen : (known[0] ?? "sql");
  const tables = Array.isArray(data["used_tables"]) ? data["used_tables"].map(String) : [];
  const decided = verdicts(step);
  const ran = step.status === "succeeded" ? step.result?.query?.sql : undefined;
  if (known.length === 0 && decided.length === 0) return null;
  return (
    <div className={styles.queries}>
      {known.length > 0 && (
        <>
          <div className={styles.tabs} role="group" aria-label={text.sql}>
            {known.map((name) => (
              <Button key={name} kind="quiet" aria-pressed={name === shown} onClick={() => choose(name)}>
                {text.dialects[name]}
              </Button>
            ))}
          </div>
          <Listing title={text.sql} content={String(data[shown])} />
        </>
      )}
      {tables.length > 0 && (
        <p className={styles.muted}>
          {text.usedTables}: <Literal text={tables.join(", ")} />
        </p>
      )}
      {decided.map((verdict, index) => (
        <GuardVerdict key={index} verdict={verdict} />
      ))}
      {hasEnded && ran && <Verification runId={runId} stepId={step.stepId} sql={ran} />}
    </div>
  );
}

function GuardVerdict({ verdict }: { verdict: Verdict }) {
  const text = useText();
  return (
    <p className={styles.verdict} data-safe={verdict.isSafe}>
      <Icon name={verdict.isSafe ? "check" : "cross"} />
      {text.runs.guard}: <strong>{verdict.isSafe ? text.runs.guardPassed : text.runs.guardRefused}</strong>
      {verdict.message && (
        <>
          {" "}
          <Literal text={verdict.message} />
        </>
      )}
      {verdict.violations.length > 0 && (
        <code>
          {" "}
          <Literal text={JSON.stringify(verdict.violations)} />
        </code>
      )}
    </p>
  );
}
