/** What Bos remembers about the user: seen with its origin, corrected, confirmed, forgotten, exported. */
import { queryOptions, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState, type FormEvent } from "react";

import { api, dataOf } from "../api/client";
import { useText } from "../messages/useText";
import { shownTime } from "../text/format";
import { Literal } from "../text/Literal";
import { Button, Failure, Notice } from "../ui/controls";
import { Dialog, DialogActions } from "../ui/Dialog";
import ui from "../ui/ui.module.css";
import { saveFile } from "../ui/useCopy";
import { ABOUT, changed, LONGEST_FACT, MOST_PROJECTS, PREFERENCES, type Change, type Fact, type FactField } from "./facts";
import styles from "./memory.module.css";

const KEY = ["memory"];
/** Facts are found beside runs: they may appear while the page is open. */
const REFETCH_MS = 5000;

const remembered = queryOptions({
  queryKey: KEY,
  queryFn: async () => (await dataOf(api.GET("/v1/memory/facts"))).facts,
  refetchInterval: REFETCH_MS,
});

export function MemoryPage() {
  const all = useText();
  const text = all.knowledge;
  const found = useQuery(remembered);
  const facts = found.data ?? [];
  const { change, confirm, forgetAll } = useChanges();
  const [isForgetting, setForgetting] = useState(false);
  const failure = change.error ?? confirm.error;
  return (
    <div className={styles.page}>
      <div className={styles.column}>
        <header className={styles.head}>
          <h1>{text.memory}</h1>
          <div className={styles.buttons}>
            <Button disabled={facts.length === 0} onClick={() => exported(facts)}>
              {text.exportMemory}
            </Button>
            <Button kind="danger" disabled={facts.length === 0} onClick={() => setForgetting(true)}>
              {text.forgetAll}
            </Button>
          </div>
          <p>{text.memoryHint}</p>
        </header>
        {found.error && <Failure error={found.error} onRetry={() => void found.refetch()} />}
        {found.isPending && <p role="status">{all.loading}</p>}
        {failure && <Failure error={failure} />}
        {found.isSuccess && (
          <>
            {facts.length === 0 && <Notice>{text.nothingRemembered}</Notice>}
            {facts.some((fact) => fact.tainted) && (
              <Notice kind="warn">
                <span>{text.taintedFact}</span>
                <Button disabled={confirm.isPending} onClick={() => confirm.mutate()}>
                  {text.confirmAll}
                </Button>
              </Notice>
            )}
            <Group title={text.about} fields={ABOUT} facts={facts} onChange={change.mutateAsync} />
            <Group title={text.preferences} fields={PREFERENCES} facts={facts} onChange={change.mutateAsync} />
          </>
        )}
      </div>
      {isForgetting && (
        <Dialog title={text.forgetAllTitle} onClose={() => setForgetting(false)}>
          {forgetAll.error && <Failure error={forgetAll.error} />}
          <p>{text.forgetAllHint}</p>
          <DialogActions>
            <Button onClick={() => setForgetting(false)}>{all.cancel}</Button>
            <Button
              kind="danger"
              disabled={forgetAll.isPending}
              onClick={() => forgetAll.mutate(undefined, { onSuccess: () => setForgetting(false) })}
            >
              {text.forgetAll}
            </Button>
          </DialogActions>
        </Dialog>
      )}
    </div>
  );
}

function useChanges() {
  const client = useQueryClient();
  const onSuccess = () => client.invalidateQueries({ queryKey: KEY });
  const current = () => dataOf(api.GET("/v1/memory"));
  // The API takes the memory as a whole: what it is now is read first, so that nothing found since is lost.
  const change = useMutation({
    mutationFn: async (wanted: Change) =>
      dataOf(api.PUT("/v1/memory", { body: changed(await current(), wanted) })),
    onSuccess,
  });
  const confirm = useMutation({
    mutationFn: async () => dataOf(api.PUT("/v1/memory", { body: { ...(await current()), tainted: false } })),
    onSuccess,
  });
  const forgetAll = useMutation({ mutationFn: () => dataOf(api.DELETE("/v1/memory")), onSuccess });
  return { change, confirm, forgetAll };
}

interface GroupProps {
  title: string;
  fields: readonly FactField[];
  facts: Fact[];
  onChange: (change: Change) => Promise<unknown>;
}

function Group({ title, fields, facts, onChange }: GroupProps) {
  const { knowledge: text } = useText();
  return (
    <section className={styles.group} aria-label={title}>
      <h2>{title}</h2>
      <dl>
        {fields.map((field) => {
          const held = facts.filter((fact) => fact.field === field);
          const mayAdd = field === "recent_projects" ? held.length < MOST_PROJECTS : held.length === 0;
          return (
            <div key={field}>
              <dt>{text.fields[field]}</dt>
              {held.map((fact) => (
                <Entry key={fact.value} field={field} fact={fact} onChange={onChange} />
              ))}
              {mayAdd && <Entry key="" field={field} fact={undefined} onChange={onChange} />}
            </div>
          );
        })}
      </dl>
    </section>
  );
}

interface EntryProps {
  field: FactField;
  fact: Fact | undefined;
  onChange: (change: Change) => Promise<unknown>;
}

function Entry({ field, fact, onChange }: EntryProps) {
  const all = useText();
  const text = all.knowledge;
  const [isEditing, setEditing] = useState(false);
  const [isBusy, setBusy] = useState(false);
  const before = fact?.value ?? "";
  const save = (after: string) => {
    setBusy(true);
    onChange({ field, before, after })
      .then(
        () => setEditing(false),
        () => undefined, // the page says why
      )
      .finally(() => setBusy(false));
  };
  if (isEditing) {
    const submit = (event: FormEvent<HTMLFormElement>) => {
      event.preventDefault();
      save(String(new FormData(event.currentTarget).get("fact")).trim());
    };
    const label = fact ? text.correctFact(text.fields[field]) : text.addTo(text.fields[field]);
    return (
      <dd>
        <form onSubmit={submit} className={styles.form}>
          <input
            className={ui.input}
            name="fact"
            aria-label={label}
            defaultValue={before}
            maxLength={LONGEST_FACT}
            required
            autoFocus
            onKeyDown={(event) => event.key === "Escape" && setEditing(false)}
          />
          <Button kind="primary" type="submit" disabled={isBusy}>
            {all.save}
          </Button>
          <Button onClick={() => setEditing(false)}>{all.cancel}</Button>
        </form>
      </dd>
    );
  }
  if (!fact) {
    return (
      <dd className={styles.entry}>
        <span className={styles.origin}>{field === "recent_projects" ? "" : text.notKnown}</span>
        <Button kind="quiet" aria-label={text.addTo(text.fields[field])} onClick={() => setEditing(true)}>
          {text.add}
        </Button>
      </dd>
    );
  }
  return (
    <dd className={styles.entry} data-tainted={fact.tainted}>
      <span className={styles.value}>
        <Literal text={fact.value} />
        <Origin fact={fact} />
      </span>
      <Button kind="quiet" aria-label={text.correctFact(fact.value)} onClick={() => setEditing(true)}>
        {text.correct}
      </Button>
      <Button kind="quiet" aria-label={text.forgetFact(fact.value)} disabled={isBusy} onClick={() => save("")}>
        {text.forget}
      </Button>
    </dd>
  );
}

function Origin({ fact }: { fact: Fact }) {
  const { knowledge: text } = useText();
  const when = shownTime(fact.learn_time);
  const words = {
    FACT_SOURCE_UNSPECIFIED: text.fromUnknown,
    FACT_SOURCE_QUESTION: text.fromQuestion,
    FACT_SOURCE_USER: text.fromUser,
  }[fact.source];
  return (
    <small className={styles.origin}>
      {fact.run_id ? (
        <Link to="/runs/$runId" params={{ runId: fact.run_id }}>
          {words}
        </Link>
      ) : (
        words
      )}
      {when && `, ${when}`}
      {fact.tainted && <strong> · {text.ofOthers}</strong>}
    </small>
  );
}

function exported(facts: Fact[]): void {
  saveFile("bos-memory.json", "application/json", `${JSON.stringify({ facts }, null, 2)}\n`);
}
