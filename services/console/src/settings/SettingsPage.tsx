/** Settings: how the page looks and writes, and what shapes each question. Stored as they are changed. */
import { useQuery } from "@tanstack/react-query";
import { useId, useState } from "react";

import { agents } from "../api/queries";
import { useText } from "../messages/useText";
import { shownNumber, shownTime } from "../text/format";
import { Button, Field, Notice } from "../ui/controls";
import { Select } from "../ui/Select";
import { LANGUAGES, LOCALES, MOST, preferences, THEMES, wholeNumber } from "./preferences";
import { usePreferences } from "./usePreferences";
import styles from "./settings.module.css";

const EXAMPLE = "1234567";

export function SettingsPage() {
  const text = useText();
  const words = text.settings;
  return (
    <div className={styles.page}>
      <div className={styles.column}>
        <h1>{words.title}</h1>
        <Notice>{words.kept}</Notice>
        <Look />
        <Questions />
      </div>
    </div>
  );
}

function Look() {
  const text = useText();
  const words = text.settings;
  const set = usePreferences();
  return (
    <section className={styles.group} aria-label={words.look}>
      <h2>{words.look}</h2>
      <Select
        label={words.theme}
        value={set.theme}
        options={THEMES.map((value) => ({ value, label: text.themes[value] }))}
        onChoose={(theme) => preferences.set({ theme })}
      />
      <Select
        label={words.language}
        value={set.language ?? ""}
        options={[
          { value: "", label: words.asBrowser },
          ...LANGUAGES.map((value) => ({ value, label: words.languages[value] })),
        ]}
        onChoose={(language) => preferences.set({ language: language || undefined })}
      />
      <Select
        label={words.locale}
        value={set.locale ?? ""}
        hint={words.example(shownNumber(EXAMPLE), shownTime("2026-06-15T09:30:00Z"))}
        options={[
          { value: "", label: words.asLanguage },
          ...LOCALES.map((value) => ({ value, label: regionOf(value) })),
        ]}
        onChoose={(locale) => preferences.set({ locale: locale || undefined })}
      />
    </section>
  );
}

/** A locale with how it writes numbers, such as "Deutsch (Schweiz) · 1’234’567.89". */
function regionOf(locale: string): string {
  const name = new Intl.DisplayNames(locale, { type: "language" }).of(locale) ?? locale;
  return `${name} · ${new Intl.NumberFormat(locale, { minimumFractionDigits: 2 }).format(1_234_567.89)}`;
}

function Questions() {
  const words = useText().settings;
  const set = usePreferences();
  const list = useId();
  const offered = useQuery(agents).data;
  const databases = [...new Set((offered?.tables ?? []).map(({ database }) => database))].filter(
    (name) => name !== "*",
  );
  const models = offered?.models ?? [];
  const [begun, setBegun] = useState(0); // fields are drawn anew when all is reset
  return (
    <section className={styles.group} aria-label={words.questions}>
      <h2>{words.questions}</h2>
      <label className={styles.switch}>
        <input
          type="checkbox"
          checked={set.debug}
          onChange={(event) => preferences.set({ debug: event.target.checked })}
        />
        <span>{words.debug}</span>
      </label>
      <NumberField key={`rows-${String(begun)}`} name="maxRows" label={words.maxRows} />
      <NumberField key={`columns-${String(begun)}`} name="maxColumns" label={words.maxColumns} />
      <NumberField key={`timeout-${String(begun)}`} name="timeoutS" label={words.timeout} />
      <Field
        label={words.backend}
        hint={words.backendHint}
        value={set.backend}
        maxLength={MOST.backend}
        list={list}
        autoComplete="off"
        spellCheck={false}
        onChange={(event) => preferences.set({ backend: event.target.value })}
      />
      <datalist id={list}>
        {databases.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      {models.length > 0 && (
        <Select
          label={words.model}
          hint={words.modelHint}
          value={models.some(({ name }) => name === set.model) ? set.model : ""}
          options={[
            { value: "", label: words.asOperator },
            ...models.map(({ name, label }) => ({ value: name, label })),
          ]}
          onChoose={(model) => preferences.set({ model })}
        />
      )}
      <div>
        <Button
          onClick={() => {
            preferences.reset();
            setBegun(begun + 1);
          }}
        >
          {words.reset}
        </Button>
      </div>
    </section>
  );
}

interface NumberFieldProps {
  name: "maxRows" | "maxColumns" | "timeoutS";
  label: string;
}

/** A number that may be left out. What is out of bounds is said, and not stored. */
function NumberField({ name, label }: NumberFieldProps) {
  const words = useText().settings;
  const [typed, setTyped] = useState(() => String(preferences.read()[name] ?? ""));
  const isWrong = typed !== "" && wholeNumber(Number(typed), MOST[name]) === undefined;
  const problem = words.outOfBounds(shownNumber(MOST[name]));
  return (
    <Field
      label={label}
      hint={isWrong ? problem : words.serversLimit}
      inputMode="numeric"
      autoComplete="off"
      value={typed}
      aria-invalid={isWrong}
      onChange={(event) => {
        const next = event.target.value.trim();
        setTyped(next);
        const number = wholeNumber(Number(next), MOST[name]);
        if (next === "" || number !== undefined) preferences.set({ [name]: number });
      }}
    />
  );
}
