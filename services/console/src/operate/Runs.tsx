/** Runs of all users, by filters; and one of them with its steps. Nothing of what is in them. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { useState, type FormEvent } from "react";

import { api, dataOf } from "../api/client";
import type { RunStatus } from "../api/types";
import { useText } from "../messages/useText";
import { hasEnded } from "../run/status";
import { seconds, shownNumber, shownSeconds, shownTime } from "../text/format";
import { Literal } from "../text/Literal";
import { Button, Failure, Field, Notice } from "../ui/controls";
import { FactList, type Fact } from "../ui/FactList";
import { Dialog, DialogActions } from "../ui/Dialog";
import { Select } from "../ui/Select";
import { Answered, Dashboard, DataTable, NoRows, Pager, UserId, usePages } from "./parts";
import { userRun, userRuns, type RunFilter, type RunOverview } from "./queries";
import styles from "./operate.module.css";

const MICROS = 1_000_000;

export function Runs() {
  const text = useText();
  const words = text.operate;
  const pages = usePages();
  const [filter, setFilter] = useState<RunFilter>({});
  const call = useQuery(userRuns({ ...filter, page_token: pages.token }));
  const runs = call.data?.runs ?? [];
  const next = call.isPlaceholderData ? undefined : call.data?.next_page_token;
  const states = Object.entries(text.runStates) as [RunStatus, string][];
  const [state, setState] = useState<RunStatus>("RUN_STATUS_UNSPECIFIED");
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const fields = Object.fromEntries(new FormData(event.currentTarget)) as Record<string, string>;
    const { owner_id = "", agent = "", error_type = "", min_tokens = "" } = fields;
    setFilter({
      ...(state === "RUN_STATUS_UNSPECIFIED" ? {} : { status: state }),
      ...(owner_id.trim() ? { owner_id: owner_id.trim() } : {}),
      ...(agent.trim() ? { agent: agent.trim() } : {}),
      ...(error_type.trim() ? { error_type: error_type.trim() } : {}),
      ...(/^\d+$/.test(min_tokens.trim()) ? { min_tokens: min_tokens.trim() } : {}),
    });
    pages.reset();
  };
  return (
    <>
      <div className={styles.head}>
        <p className={styles.muted}>{words.noContent}</p>
        <Dashboard uid="bos-runs" />
      </div>
      <form className={styles.filters} onSubmit={submit}>
        <Select
          label={words.state}
          value={state}
          options={states.map(([value, label]) => ({
            value,
            label: value === "RUN_STATUS_UNSPECIFIED" ? words.any : label,
          }))}
          onChoose={setState}
        />
        <Field label={words.user} name="owner_id" maxLength={256} autoComplete="off" />
        <Field label={words.agent} name="agent" maxLength={64} autoComplete="off" />
        <Field label={words.error} name="error_type" maxLength={64} autoComplete="off" />
        <Field label={words.minTokens} name="min_tokens" inputMode="numeric" maxLength={15} autoComplete="off" />
        <Button type="submit">{words.filter}</Button>
      </form>
      <Answered call={call}>
        {runs.length === 0 ? (
          <NoRows next={next} isFiltered={Object.keys(filter).length > 0} />
        ) : (
          <DataTable
            label={words.runs}
            columns={[
              { name: words.started },
              { name: words.state },
              { name: words.user },
              { name: words.agents },
              { name: words.error },
              { name: words.tokens, isNumber: true },
              { name: text.took, isNumber: true },
            ]}
            rows={runs.map((run) => ({ key: run.run_id, cells: cellsOfRun(run, text.runStates) }))}
          />
        )}
        <Pager number={pages.number} next={next} turn={pages.turn} />
      </Answered>
    </>
  );
}

function cellsOfRun(run: RunOverview, states: Record<RunStatus, string>) {
  return [
    <Link key="run" to="/operate/runs/$runId" params={{ runId: run.run_id }} className={styles.time}>
      {shownTime(run.create_time)}
    </Link>,
    <span key="state" className={run.status === "RUN_STATUS_FAILED" ? styles.bad : undefined}>
      {states[run.status]}
    </span>,
    <UserId key="user" id={run.user_id} />,
    <Literal key="agents" text={run.agents.join(", ")} />,
    <Literal key="error" text={run.error_type} />,
    run.tokens === "0" ? "" : shownNumber(run.tokens),
    took(run),
  ];
}

function took({ create_time, finish_time }: RunOverview): string {
  if (!create_time || !finish_time) return "";
  return shownSeconds((Date.parse(finish_time) - Date.parse(create_time)) / 1000);
}

export function RunOfUser() {
  const { runId } = useParams({ strict: false });
  const call = useQuery(userRun(runId ?? ""));
  return (
    <Answered call={call}>
      {call.data && (
        <>
          <Facts run={call.data} />
          <Steps run={call.data} />
          {!hasEnded(call.data.status) && <Cancel runId={call.data.run_id} />}
        </>
      )}
    </Answered>
  );
}

function Facts({ run }: { run: RunOverview }) {
  const text = useText();
  const words = text.operate;
  const usage = run.usage;
  const facts: Fact[] = [
    [words.state, text.runStates[run.status]],
    [words.user, run.user_id],
    [words.started, shownTime(run.create_time)],
    [words.ended, shownTime(run.finish_time)],
    [text.took, took(run)],
    [words.error, run.error_type],
    [text.modelCalls, usage ? shownNumber(usage.model_calls) : ""],
    [
      words.tokens,
      usage ? text.modelTokensOf(shownNumber(usage.input_tokens), shownNumber(usage.output_tokens)) : "",
    ],
    [words.cost, costOf(usage?.cost_micros, words.unknownCost)],
  ];
  return (
    <>
      <div className={styles.head}>
        <h2>
          <Literal text={words.runOf(run.run_id)} />
        </h2>
        <Dashboard uid="bos-runs" />
      </div>
      <p className={styles.muted}>{words.noContent}</p>
      <FactList facts={facts} className={styles.facts} />
    </>
  );
}

/** A price of the API, in millionths of a US dollar; 0: the model's price is not known. */
function costOf(micros: string | undefined, unknown: string): string {
  return micros === undefined || micros === "0" ? unknown : `${shownNumber(Number(micros) / MICROS)} USD`;
}

function Steps({ run }: { run: RunOverview }) {
  const text = useText();
  const words = text.operate;
  if (run.steps.length === 0) return null;
  return (
    <DataTable
      label={text.steps}
      columns={[
        { name: words.step, isNumber: true },
        { name: words.agent },
        { name: words.state },
        { name: words.attempts, isNumber: true },
        { name: text.took, isNumber: true },
        { name: words.tokens, isNumber: true },
        { name: words.error },
      ]}
      rows={run.steps.map((step) => {
        const latency = seconds(step.latency);
        const tokens = Number(step.usage?.input_tokens ?? 0) + Number(step.usage?.output_tokens ?? 0);
        return {
          key: `${String(step.revision)}.${String(step.place)}`,
          cells: [
            step.revision > 0 ? `${String(step.place)} (${text.revision(step.revision)})` : step.place,
            <Literal key="agent" text={step.agent} />,
            step.awaits_approval ? text.stepStates.approval : (words.stepStates[step.status] ?? step.status),
            shownNumber(step.attempts),
            latency === undefined ? "" : shownSeconds(latency),
            tokens === 0 ? "" : shownNumber(tokens),
            <Literal key="error" text={step.error_type} />,
          ],
        };
      })}
    />
  );
}

function Cancel({ runId }: { runId: string }) {
  const text = useText();
  const words = text.operate;
  const client = useQueryClient();
  const [isOpen, setOpen] = useState(false);
  const [reason, setReason] = useState("");
  const cancel = useMutation({
    mutationFn: () =>
      dataOf(
        api.POST("/v1/operator/runs/{run_id}:cancel", {
          params: { path: { run_id: runId } },
          body: { reason },
        }),
      ),
    onSuccess: () => {
      setOpen(false);
      return client.invalidateQueries({ queryKey: ["operate"] });
    },
  });
  return (
    <div>
      {cancel.isSuccess ? (
        <Notice role="status">{words.cancelled}</Notice>
      ) : (
        <Button kind="danger" onClick={() => setOpen(true)}>
          {words.cancelRun}
        </Button>
      )}
      {isOpen && (
        <Dialog title={words.cancelQuestion} onClose={() => setOpen(false)}>
          <p>{words.cancelHint}</p>
          <Field
            label={words.reason}
            value={reason}
            maxLength={1024}
            onChange={(event) => setReason(event.target.value)}
          />
          {cancel.error && <Failure error={cancel.error} />}
          <DialogActions>
            <Button onClick={() => setOpen(false)}>{text.cancel}</Button>
            <Button kind="danger" disabled={cancel.isPending} onClick={() => cancel.mutate()}>
              {words.cancelRun}
            </Button>
          </DialogActions>
        </Dialog>
      )}
    </div>
  );
}
