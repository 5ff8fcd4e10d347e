/** Buttons, fields, notices: the small parts that all pages are made of. */
import type { ButtonHTMLAttributes, InputHTMLAttributes, ReactNode } from "react";

import { ApiError, isNotServed } from "../api/errors";
import { useText } from "../messages/useText";
import styles from "./ui.module.css";

interface ButtonProps extends ButtonHTMLAttributes<HTMLButtonElement> {
  kind?: "plain" | "primary" | "quiet" | "danger";
}

export function buttonClass(kind: ButtonProps["kind"] = "plain"): string {
  return `${styles.button ?? ""} ${kind === "plain" ? "" : (styles[kind] ?? "")}`;
}

export function Button({ kind, type = "button", className = "", ...rest }: ButtonProps) {
  return <button type={type} className={`${buttonClass(kind)} ${className}`} {...rest} />;
}

const PATHS = {
  plus: "M12 5v14M5 12h14",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6L6 18",
  send: "M12 19V5M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  shield: "M12 3l7 3v5c0 4.500-3 8-7 10-4-2-7-5.500-7-10V6z",
  more: "M5 12h.5M11.750 12h.5M18.500 12h.5",
  check: "M5 12.500l4.500 4.500L19 7.500",
  cross: "M7 7l10 10M17 7L7 17",
  clock: "M12 7v5l3 2M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18z",
  down: "M6 9l6 6 6-6",
  right: "M9 6l6 6-6 6",
  skip: "M6 12h12",
  up: "M7 10v10H4V10zM7 10l4-7c1.500 0 2.500 1 2.500 2.500V9H19c1 0 1.800.9 1.600 1.900l-1.300 7A2 2 0 0 1 17.300 20H7",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  upload: "M12 16V4M7 9l5-5 5 5M4 16v4h16v-4",
  download: "M12 4v12M7 11l5 5 5-5M4 16v4h16v-4",
  page: "M6 3h8l4 4v14H6zM14 3v4h4M9 12h6M9 16h6",
  folder: "M3 6h6l2 2h10v11H3z",
  bulb: "M9 18h6M10 21h4M8 14a6 6 0 1 1 8 0c-.8.8-1 1.500-1 2H9c0-.5-.2-1.200-1-2z",
} as const;

export function Icon({ name, flipped = false }: { name: keyof typeof PATHS; flipped?: boolean }) {
  return (
    <svg className={styles.icon} viewBox="0 0 24 24" aria-hidden="true">
      <path d={PATHS[name]} transform={flipped ? "rotate(180 12 12)" : undefined} />
    </svg>
  );
}

interface FieldProps extends InputHTMLAttributes<HTMLInputElement> {
  label: string;
  hint?: string;
}

export function Field({ label, hint, ...rest }: FieldProps) {
  return (
    <label className={styles.field}>
      <span>{label}</span>
      <input className={styles.input} {...rest} />
      {hint && <small>{hint}</small>}
    </label>
  );
}

interface NoticeProps {
  children: ReactNode;
  kind?: "plain" | "bad" | "warn";
  role?: "status" | "alert";
}

export function Notice({ children, kind = "plain", role }: NoticeProps) {
  const tone = { plain: "", bad: styles.noticeBad, warn: styles.noticeWarn }[kind] ?? "";
  return (
    <div className={`${styles.notice ?? ""} ${tone}`} role={role}>
      {children}
    </div>
  );
}

/** Why a call failed, and what to do. The message of the API is meant for users. */
export function Failure({ error, onRetry }: { error: Error; onRetry?: () => void }) {
  const text = useText();
  if (isNotServed(error)) return <Notice role="status">{text.notServed}</Notice>;
  return (
    <Notice kind="bad" role="alert">
      <span>
        {error instanceof ApiError ? text.failed(error.message) : text.noConnection}
        {error instanceof ApiError &&
          error.retryAfterS !== undefined &&
          ` ${text.waitSeconds(error.retryAfterS)}`}
      </span>
      {onRetry && <Button onClick={onRetry}>{text.retry}</Button>}
    </Notice>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className={styles.empty}>
      <h2>{title}</h2>
      {children}
    </div>
  );
}
