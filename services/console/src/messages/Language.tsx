/** Gives the pages their words, in the language that was set or that the browser prefers. */
import { useEffect, useMemo, useState, type ReactNode } from "react";

import { shownLanguage, shownLocale, type Language as Name } from "../settings/preferences";
import { usePreferences } from "../settings/usePreferences";
import { en, type Messages } from "./en";
import { TextContext } from "./useText";

/** Catalogues that are loaded when they are needed. */
const OTHERS: Record<Exclude<Name, "en">, () => Promise<Messages>> = {
  de: async () => (await import("./de")).de,
};

interface Loaded {
  name: Name;
  messages: Messages;
}

const ENGLISH: Loaded = { name: "en", messages: en };

export function Language({ children }: { children: ReactNode }) {
  const set = usePreferences();
  const name = shownLanguage(set);
  const locale = shownLocale(set);
  const [other, setOther] = useState<Loaded>();
  // A language that cannot be loaded leaves the page in English.
  const [failed, setFailed] = useState<Name>();
  useEffect(() => {
    if (name === "en") return undefined;
    let isCurrent = true;
    OTHERS[name]().then(
      (messages) => isCurrent && setOther({ name, messages }),
      () => isCurrent && setFailed(name),
    );
    return () => {
      isCurrent = false;
    };
  }, [name]);
  const isLoading = name !== "en" && other?.name !== name && failed !== name;
  const shown = name !== "en" && other?.name === name ? other : ENGLISH;
  useEffect(() => {
    if (!isLoading) document.documentElement.lang = shown.name;
  }, [isLoading, shown]);
  // A new object for another locale too: numbers and dates are written anew.
  // eslint-disable-next-line react-hooks/exhaustive-deps -- see above
  const messages = useMemo(() => ({ ...shown.messages }), [shown, locale]);
  if (isLoading && other === undefined) return null; // for the moment that the first catalogue takes
  return <TextContext value={messages}>{children}</TextContext>;
}
