/** The audit trails of the services: who did what, by filters, page by page. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { useText } from "../messages/useText";
import { shownTime } from "../text/format";
import { Literal } from "../text/Literal";
import { Button, Field } from "../ui/controls";
import { Select } from "../ui/Select";
import { Answered, DataTable, NoRows, Pager, usePages } from "./parts";
import { auditEntries, TRAILS, type AuditFilter, type Trail } from "./queries";
import styles from "./operate.module.css";

const OUTCOMES = ["", "succeeded", "refused", "failed"] as const;
type Outcome = (typeof OUTCOMES)[number];

export function Audit() {
  const words = useText().operate;
  const pages = usePages();
  const [service, setService] = useState<Trail>("identity");
  const [outcome, setOutcome] = useState<Outcome>("");
  const [filter, setFilter] = useState<AuditFilter>({});
  // The trail grows, and each look at it is an entry: it is read again when that is asked for.
  const [look, setLook] = useState(0);
  const call = useQuery(auditEntries(service, { ...filter, page_token: pages.token }, look));
  const entries = call.data?.entries ?? [];
  const next = call.isPlaceholderData ? undefined : call.data?.next_page_token;
  return (
    <>
      <form
        className={styles.filters}
        onSubmit={(event) => {
          event.preventDefault();
          const fields = new FormData(event.currentTarget);
          const given: AuditFilter = outcome ? { outcome } : {};
          for (const name of ["actor", "action", "target"] as const) {
            const value = fields.get(name);
            if (typeof value === "string" && value.trim()) given[name] = value.trim();
          }
          setFilter(given);
          setLook(look + 1);
          pages.reset();
        }}
      >
        <Select
          label={words.trail}
          value={service}
          options={TRAILS.map((value) => ({ value, label: value }))}
          onChoose={(chosen) => {
            setService(chosen);
            pages.reset();
          }}
        />
        <Field label={words.actor} name="actor" maxLength={256} autoComplete="off" />
        <Field label={words.action} name="action" maxLength={128} autoComplete="off" title={words.actionHint} />
        <Field label={words.target} name="target" maxLength={256} autoComplete="off" />
        <Select
          label={words.outcome}
          value={outcome}
          options={OUTCOMES.map((value) => ({ value, label: value ? (words.outcomes[value] ?? value) : words.any }))}
          onChoose={setOutcome}
        />
        <Button type="submit">{words.filter}</Button>
      </form>
      <p className={styles.muted}>{words.actionHint}</p>
      <Answered call={call}>
        {entries.length === 0 ? (
          <NoRows next={next} isFiltered={Object.keys(filter).length > 0} />
        ) : (
          <DataTable
            label={words.administration.audit}
            columns={[
              { name: words.time },
              { name: words.action },
              { name: words.actor },
              { name: words.target },
              { name: words.outcome },
              { name: words.address },
              { name: words.details },
            ]}
            rows={entries.map((each) => ({
              key: each.position,
              cells: [
                <span key="time" className={styles.time}>
                  {shownTime(each.occur_time)}
                </span>,
                <code key="action">{each.action}</code>,
                <Literal key="actor" text={each.actor ? `${each.actor_kind} ${each.actor}` : each.actor_kind} />,
                <Literal key="target" text={each.target} />,
                <span key="outcome" className={each.outcome === "succeeded" ? undefined : styles.bad}>
                  {words.outcomes[each.outcome] ?? each.outcome}
                </span>,
                <Literal key="address" text={each.address} />,
                <Literal
                  key="details"
                  text={Object.entries(each.details)
                    .map(([name, value]) => `${name}: ${value}`)
                    .join(" · ")}
                />,
              ],
            }))}
          />
        )}
        <Pager number={pages.number} next={next} turn={pages.turn} />
      </Answered>
    </>
  );
}
