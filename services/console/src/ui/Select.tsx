/** One of a few values: the browser's own list, which works with any keyboard and on any phone. */
import { useId } from "react";

import styles from "./ui.module.css";

interface Props<Value extends string> {
  label: string;
  value: Value;
  options: readonly { value: Value; label: string }[];
  onChoose: (value: Value) => void;
  hint?: string;
}

export function Select<Value extends string>({ label, value, options, onChoose, hint }: Props<Value>) {
  const id = useId();
  return (
    <div className={styles.field}>
      <label htmlFor={id}>
        <span>{label}</span>
      </label>
      <select
        id={id}
        className={styles.input}
        value={value}
        aria-describedby={hint ? `${id}-hint` : undefined}
        onChange={(event) => {
          const chosen = options.find((each) => each.value === event.target.value);
          if (chosen) onChoose(chosen.value);
        }}
      >
        {options.map((each) => (
          <option key={each.value} value={each.value}>
            {each.label}
          </option>
        ))}
      </select>
      {hint && <small id={`${id}-hint`}>{hint}</small>}
    </div>
  );
}
