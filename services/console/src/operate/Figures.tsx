/** Agents, spend, approvals, ingestion and storage, as operators see them. */
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";

import { agents } from "../api/queries";
import { useText } from "../messages/useText";
import { shownBytes, shownNumber, shownTime } from "../text/format";
import { Literal } from "../text/Literal";
import { Empty } from "../ui/controls";
import { Select } from "../ui/Select";
import { Answered, Dashboard, DataTable, NoRows, Pager, UserId, usePages } from "./parts";
import { ingestion, spend, storage, userApprovals, type ApprovalStatus } from "./queries";
import styles from "./operate.module.css";

export function Agents() {
  const words = useText().operate;
  const call = useQuery({ ...agents, refetchInterval: 10_000 });
  return (
    <>
      <div className={styles.head}>
        <Dashboard uid="bos-agents" />
      </div>
      <Answered call={call}>
        {call.data?.agents.length === 0 && <Empty title={words.nothing} />}
        <div className={styles.cards}>
          {call.data?.agents.map(({ card, available, unavailable_reason }) => (
            <article key={card?.name} className={styles.card}>
              <h2>
                <Literal text={card?.name ?? ""} />
              </h2>
              <p className={available ? styles.good : styles.bad}>
                {available ? words.answers : words.away}
                {!available && unavailable_reason && (
                  <>
                    {": "}
                    <Literal text={unavailable_reason} />
                  </>
                )}
              </p>
              {card?.version && (
                <p className={styles.muted}>
                  {words.version} <Literal text={card.version} />
                </p>
              )}
              <p>
                <Literal text={card?.description ?? ""} />
              </p>
              <details>
                <summary>{words.capabilities}</summary>
                <ul>
                  {card?.capabilities.map((each) => (
                    <li key={each}>
                      <Literal text={each} />
                    </li>
                  ))}
                </ul>
                {card && card.tools.length > 0 && (
                  <p>
                    {words.tools}: <Literal text={card.tools.map(({ name }) => name).join(", ")} />
                  </p>
                )}
              </details>
            </article>
          ))}
        </div>
      </Answered>
    </>
  );
}

const DAYS = ["1", "7", "31"] as const;

export function Spend() {
  const words = useText().operate;
  const [days, setDays] = useState<(typeof DAYS)[number]>("1");
  const call = useQuery(spend(Number(days)));
  const bound = (tokens: string) => (tokens === "0" ? words.noBound : shownNumber(tokens));
  const { data } = call;
  return (
    <>
      <div className={styles.head}>
        <Select
          label={words.days}
          value={days}
          options={DAYS.map((value) => ({ value, label: words.lastDays(Number(value)) }))}
          onChoose={setDays}
        />
        <Dashboard uid="bos-models" />
      </div>
      <Answered call={call}>
        {data && (
          <>
            <h2>{words.bounds}</h2>
            <dl className={styles.facts}>
              {(
                [
                  [words.perRun, data.max_run_tokens],
                  [words.perUserDay, data.max_user_day_tokens],
                  [words.perDay, data.max_day_tokens],
                ] as const
              ).map(([name, tokens]) => (
                <div key={name}>
                  <dt>{name}</dt>
                  <dd>{bound(tokens)}</dd>
                </div>
              ))}
            </dl>
            {data.users.length === 0 ? (
              <Empty title={words.nothing} />
            ) : (
              <DataTable
                label={words.tokens}
                columns={[
                  { name: words.user },
                  { name: words.tokens, isNumber: true },
                  { name: words.heldTokens, isNumber: true },
                  { name: words.runs, isNumber: true },
                  { name: words.failedRuns, isNumber: true },
                ]}
                rows={[{ ...data.total, isTotal: true }, ...data.users].map((each) => ({
                  key: "isTotal" in each ? "" : `user ${each.user_id ?? ""}`,
                  cells: [
                    "isTotal" in each ? (
                      <strong key="all">{words.everybody}</strong>
                    ) : (
                      <UserId key="user" id={each.user_id ?? ""} />
                    ),
                    shownNumber(each.tokens ?? "0"),
                    shownNumber(each.held_tokens ?? "0"),
                    shownNumber(each.runs ?? "0"),
                    shownNumber(each.failed_runs ?? "0"),
                  ],
                }))}
              />
            )}
          </>
        )}
      </Answered>
    </>
  );
}

export function Approvals() {
  const text = useText();
  const words = text.operate;
  const pages = usePages();
  const [status, setStatus] = useState<ApprovalStatus>("APPROVAL_STATUS_PENDING");
  const call = useQuery(userApprovals({ status, page_token: pages.token }));
  const approvals = call.data?.approvals ?? [];
  const next = call.isPlaceholderData ? undefined : call.data?.next_page_token;
  const states = Object.entries(text.approvalStates) as [ApprovalStatus, string][];
  return (
    <>
      <div className={styles.head}>
        <Select
          label={words.state}
          value={status}
          options={states.map(([value, label]) => ({
            value,
            label: value === "APPROVAL_STATUS_UNSPECIFIED" ? words.any : label,
          }))}
          onChoose={(chosen) => {
            setStatus(chosen);
            pages.reset();
          }}
        />
        <Dashboard uid="bos-approvals" />
      </div>
      <p className={styles.muted}>{words.noContent}</p>
      <Answered call={call}>
        {approvals.length === 0 ? (
          <NoRows next={next} isFiltered={status !== "APPROVAL_STATUS_UNSPECIFIED"} />
        ) : (
          <DataTable
            label={words.sections.approvals}
            columns={[
              { name: words.requested },
              { name: words.state },
              { name: words.user },
              { name: words.agent },
              { name: words.tools },
              { name: words.expires },
              { name: words.decidedBy },
            ]}
            rows={approvals.map((each) => ({
              key: each.approval_id,
              cells: [
                <Link
                  key="run"
                  to="/operate/runs/$runId"
                  params={{ runId: each.run_id }}
                  className={styles.time}
                >
                  {shownTime(each.create_time)}
                </Link>,
                each.is_sent_back ? text.sentBack : text.approvalStates[each.status],
                <UserId key="user" id={each.user_id} />,
                <Literal key="agent" text={each.agent_name} />,
                <Literal key="tools" text={each.tools.join(", ")} />,
                each.status === "APPROVAL_STATUS_PENDING" ? shownTime(each.expire_time) : "",
                <UserId key="by" id={each.decided_by} />,
              ],
            }))}
          />
        )}
        <Pager number={pages.number} next={next} turn={pages.turn} />
      </Answered>
    </>
  );
}

export function Ingestion() {
  const words = useText().operate;
  const call = useQuery(ingestion);
  const { data } = call;
  return (
    <>
      <div className={styles.head}>
        <Dashboard uid="bos-documents" />
      </div>
      <Answered call={call}>
        {data && (
          <>
            <dl className={styles.facts}>
              <div>
                <dt>{words.ready}</dt>
                <dd>{shownNumber(data.ready_documents)}</dd>
              </div>
              <div>
                <dt>{words.stored}</dt>
                <dd>{shownBytes(data.stored_bytes)}</dd>
              </div>
            </dl>
            {data.stages.length === 0 ? (
              <Empty title={words.noQueue} />
            ) : (
              <DataTable
                label={words.sections.ingestion}
                columns={[
                  { name: words.stage },
                  { name: words.documents, isNumber: true },
                  { name: words.underWay, isNumber: true },
                  { name: words.heldUp, isNumber: true },
                  { name: words.oldest },
                ]}
                rows={data.stages.map((each) => ({
                  key: each.stage,
                  cells: [
                    <code key="stage">{each.stage}</code>,
                    shownNumber(each.documents),
                    shownNumber(each.under_way),
                    shownNumber(each.held_up),
                    shownTime(each.oldest_time),
                  ],
                }))}
              />
            )}
            {data.failures.length > 0 && (
              <>
                <h2>{words.failures}</h2>
                <DataTable
                  label={words.failures}
                  columns={[
                    { name: words.reason },
                    { name: words.documents, isNumber: true },
                    { name: words.lastFailure },
                  ]}
                  rows={data.failures.map((each) => ({
                    key: each.reason,
                    cells: [
                      <Literal key="reason" text={each.reason} />,
                      shownNumber(each.documents),
                      shownTime(each.last_time),
                    ],
                  }))}
                />
              </>
            )}
          </>
        )}
      </Answered>
    </>
  );
}

export function Storage() {
  const words = useText().operate;
  const call = useQuery(storage);
  const { data } = call;
  return (
    <>
      <div className={styles.head}>
        <Dashboard uid="bos-run-log" />
      </div>
      <Answered call={call}>
        {data && (
          <>
            <dl className={styles.facts}>
              <div>
                <dt>{words.database}</dt>
                <dd>{shownBytes(data.database_bytes)}</dd>
              </div>
            </dl>
            <DataTable
              label={words.sections.storage}
              columns={[
                { name: words.table },
                { name: words.estimatedRows, isNumber: true },
                { name: words.size, isNumber: true },
                { name: words.indexes, isNumber: true },
              ]}
              rows={data.tables.map((each) => ({
                key: `${each.schema}.${each.table}`,
                cells: [
                  <Literal key="table" text={`${each.schema}.${each.table}`} />,
                  each.estimated_rows === "-1" ? "" : shownNumber(each.estimated_rows),
                  shownBytes(each.bytes),
                  shownBytes(each.index_bytes),
                ],
              }))}
            />
          </>
        )}
      </Answered>
    </>
  );
}
