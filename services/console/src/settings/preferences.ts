/** What a user has set for the console: kept in this browser, as the API stores no settings. */

export const THEMES = ["system", "light", "dark", "bank"] as const;
export type Theme = (typeof THEMES)[number];
export const LANGUAGES = ["en", "de"] as const;
export type Language = (typeof LANGUAGES)[number];
/** Ways to write numbers and dates that are offered; each is written as in its region. */
export const LOCALES = ["en-US", "en-GB", "de-DE", "de-CH", "fr-FR", "en-IN"] as const;

export interface Preferences {
  theme: Theme;
  /** Unset: as the browser says. */
  language?: Language | undefined;
  /** BCP 47 tag by which numbers and dates are written; unset: by the language. */
  locale?: string | undefined;
  /** Each step is shown with all it did below its answer. */
  debug: boolean;
  maxRows?: number | undefined;
  maxColumns?: number | undefined;
  timeoutS?: number | undefined;
  /** Name of the database that is asked; empty: the one of the agents' own settings. */
  backend: string;
  /** Name of the model that answers; empty, or no longer offered: as the operator has set it. */
  model: string;
  /** Account whose settings of questions these are: another one in this browser begins anew. */
  owner: string;
}

/** Bounds of what can be set; the server bounds it further. */
export const MOST = { maxRows: 100_000, maxColumns: 1000, timeoutS: 86_400, backend: 128, model: 128 } as const;

const KEY = "bos-preferences";
const DEFAULTS: Preferences = { theme: "system", debug: false, backend: "", model: "", owner: "" };

/** The preferences as stored text has them; what is invalid in it counts as unset. */
export function parsed(stored: string | null): Preferences {
  let found: Partial<Record<keyof Preferences, unknown>> = {};
  try {
    const value: unknown = JSON.parse(stored ?? "{}");
    if (typeof value === "object" && value !== null) found = value;
  } catch {
    return DEFAULTS;
  }
  return {
    theme: oneOf(THEMES, found.theme) ?? DEFAULTS.theme,
    language: oneOf(LANGUAGES, found.language),
    locale: oneOf(LOCALES, found.locale),
    debug: found.debug === true,
    maxRows: wholeNumber(found.maxRows, MOST.maxRows),
    maxColumns: wholeNumber(found.maxColumns, MOST.maxColumns),
    timeoutS: wholeNumber(found.timeoutS, MOST.timeoutS),
    backend: typeof found.backend === "string" ? found.backend.slice(0, MOST.backend) : "",
    model: typeof found.model === "string" ? found.model.slice(0, MOST.model) : "",
    owner: typeof found.owner === "string" ? found.owner : "",
  };
}

/** A whole number from 1 to `most`; undefined for anything else. */
export function wholeNumber(value: unknown, most: number): number | undefined {
  return typeof value === "number" && Number.isInteger(value) && value >= 1 && value <= most
    ? value
    : undefined;
}

function oneOf<Value>(known: readonly Value[], value: unknown): Value | undefined {
  return known.find((each) => each === value);
}

/** Holds the preferences, and calls listeners when they change, also in another tab. One per page. */
class PreferenceStore {
  private current = parsed(readStored());
  private readonly listeners = new Set<() => void>();

  readonly read = (): Preferences => this.current;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** Changes some of the preferences and stores all of them. */
  set(change: Partial<Preferences>): void {
    this.current = { ...this.current, ...change };
    try {
      localStorage.setItem(KEY, JSON.stringify(this.current));
    } catch {
      // Storage is switched off: they hold until the page is closed.
    }
    this.tell();
  }

  /** Sets all of them back, for the same account. */
  reset(): void {
    this.current = { ...DEFAULTS, owner: this.current.owner };
    this.set({});
  }

  /** Forgets what shapes questions if another account set it; how the page looks stays as it is. */
  belongTo(owner: string): void {
    const { owner: before } = this.current;
    if (before === owner) return;
    const { debug, backend, model } = DEFAULTS;
    const forgotten = { debug, backend, model, maxRows: undefined, maxColumns: undefined, timeoutS: undefined };
    this.set(before ? { ...forgotten, owner } : { owner });
  }

  /** Follows changes in other tabs; returns its stop. */
  followTabs(): () => void {
    const follow = (event: StorageEvent) => {
      if (event.key !== KEY) return;
      this.current = parsed(event.newValue);
      this.tell();
    };
    addEventListener("storage", follow);
    return () => removeEventListener("storage", follow);
  }

  private tell(): void {
    for (const listener of this.listeners) listener();
  }
}

function readStored(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // storage is switched off
  }
}

export const preferences = new PreferenceStore();

function browserLanguages(): readonly string[] {
  return typeof navigator === "undefined" ? [] : navigator.languages; // tests have no browser
}

/** The language of the page: the one that was set, else the first of the browser's that there is. */
export function shownLanguage(
  { language }: Preferences = preferences.read(),
  wanted: readonly string[] = browserLanguages(),
): Language {
  if (language) return language;
  for (const tag of wanted) {
    const known = oneOf(LANGUAGES, tag.split("-")[0]?.toLowerCase());
    if (known) return known;
  }
  return "en";
}

/**
 * How numbers and dates are written: as was set; else as the browser's own locale of the page's
 * language writes them, such as `de-AT`.
 */
export function shownLocale(
  set: Preferences = preferences.read(),
  wanted: readonly string[] = browserLanguages(),
): string {
  if (set.locale) return set.locale;
  const language = shownLanguage(set, wanted);
  return wanted.find((tag) => tag.split("-")[0]?.toLowerCase() === language) ?? language;
}
