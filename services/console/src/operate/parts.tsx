/** What the pages of operators and administrators are made of: frame, sections, tables, pages of rows. */
import { Link } from "@tanstack/react-router";
import { useState, type ReactNode } from "react";

import { useText } from "../messages/useText";
import { useSession } from "../shell/useSession";
import { Literal } from "../text/Literal";
import { Button, Empty, Failure } from "../ui/controls";
import { useRoles, type Role } from "./useRoles";
import styles from "./operate.module.css";

interface FrameProps {
  title: string;
  role: Role;
  sections: readonly { to: string; label: string }[];
  children: ReactNode;
}

/** A page for those who have a role; others see that it is not for them. */
export function Frame({ title, role, sections, children }: FrameProps) {
  const text = useText();
  const roles = useRoles();
  if (roles === undefined) {
    return (
      <p className={styles.page} role="status">
        {text.loading}
      </p>
    );
  }
  if (!roles.includes(role)) {
    return (
      <div className={styles.page}>
        <Empty title={text.operate.denied}>
          <p>{text.operate.deniedHint(text.operate.roleNames[role])}</p>
          <Link to="/">{text.toStart}</Link>
        </Empty>
      </div>
    );
  }
  return (
    <div className={styles.page}>
      <div className={styles.column}>
        <h1>{title}</h1>
        <nav className={styles.sections} aria-label={title}>
          {sections.map(({ to, label }) => (
            <Link key={to} to={to} className={styles.section}>
              {label}
            </Link>
          ))}
        </nav>
        {children}
      </div>
    </div>
  );
}

/** Link to a dashboard of `deploy/grafana`, if the installation says where Grafana is. */
export function Dashboard({ uid }: { uid: string }) {
  const text = useText();
  const base = useSession().current?.dashboards_url;
  if (!base) return null;
  return (
    <a className={styles.dashboard} href={`${base.replace(/\/$/, "")}/d/${uid}`} rel="noreferrer">
      {text.operate.dashboard}
    </a>
  );
}

/** The id of a user, as literal text on one line. */
export function UserId({ id }: { id: string }) {
  return (
    <span className={styles.id}>
      <Literal text={id} />
    </span>
  );
}

interface TableProps {
  label: string;
  columns: readonly { name: string; isNumber?: boolean }[];
  /** Cells of each row, in the order of the columns, under a key. */
  rows: readonly { key: string; cells: readonly ReactNode[] }[];
}

export function DataTable({ label, columns, rows }: TableProps) {
  return (
    <div className={styles.frame} role="region" aria-label={label} tabIndex={0}>
      <table className={styles.table}>
        <thead>
          <tr>
            {columns.map(({ name, isNumber }) => (
              <th key={name} scope="col" data-number={isNumber}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ key, cells }) => (
            <tr key={key}>
              {cells.map((cell, index) => (
                <td key={columns[index]?.name} data-number={columns[index]?.isNumber}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface Answer {
  isPending: boolean;
  error: Error | null;
  refetch: () => unknown;
}

/** What a call has answered, or that it is waited for, or why it failed. */
export function Answered({ call, children }: { call: Answer; children: ReactNode }) {
  const text = useText();
  if (call.error) return <Failure error={call.error} onRetry={() => void call.refetch()} />;
  if (call.isPending) return <p role="status">{text.loading}</p>;
  return children;
}

/** The tokens of the pages so far: one page is shown at a time, however many rows there are. */
export function usePages(): { token: string; number: number; turn: Turn; reset: () => void } {
  const [tokens, setTokens] = useState([""]);
  return {
    token: tokens.at(-1) ?? "",
    number: tokens.length,
    turn: {
      next: (token) => setTokens((before) => [...before, token]),
      back: () => setTokens((before) => (before.length > 1 ? before.slice(0, -1) : before)),
    },
    reset: () => setTokens([""]),
  };
}

interface Turn {
  next: (token: string) => void;
  back: () => void;
}

interface PagerProps {
  number: number;
  /** Token of the next page; unset if there is none, or while a page is fetched. */
  next: string | undefined;
  turn: Turn;
}

export function Pager({ number, next, turn }: PagerProps) {
  const words = useText().operate;
  const [wasShown, setShown] = useState(false);
  if (number === 1 && !next && !wasShown) return null;
  if (!wasShown) setShown(true);
  // Not `disabled`, which would lose the keyboard focus of users who turn pages.
  return (
    <nav className={styles.pager} aria-label={words.pageNumber(number)}>
      <Button aria-disabled={number === 1} onClick={turn.back}>
        {words.previous}
      </Button>
      <span aria-live="polite">{words.pageNumber(number)}</span>
      <Button aria-disabled={!next} onClick={() => next && turn.next(next)}>
        {words.next}
      </Button>
    </nav>
  );
}

/** That a page has no rows: for good, or because its part of the whole had none that match. */
export function NoRows({ next, isFiltered }: { next: string | undefined; isFiltered: boolean }) {
  const words = useText().operate;
  return <Empty title={next ? words.nothingYet : isFiltered ? words.nothingFound : words.nothing} />;
}
