/** A question that is being written, kept in this tab until it is asked. */
import { useEffect, useState } from "react";

const PREFIX = "bos-draft-";

/** Forgets all drafts: the next user of this tab does not see them. */
export function forgetDrafts(): void {
  for (const name of Object.keys(sessionStorage)) {
    if (name.startsWith(PREFIX)) sessionStorage.removeItem(name);
  }
}

/** Begins a question that is to be written on the page of a new one. */
export function beginDraft(draft: string): void {
  sessionStorage.setItem(`${PREFIX}new`, draft);
}

export function useDraft(key: string): [string, (draft: string) => void] {
  const name = PREFIX + key;
  const [draft, setDraft] = useState(() => sessionStorage.getItem(name) ?? "");
  useEffect(() => {
    if (draft) sessionStorage.setItem(name, draft);
    else sessionStorage.removeItem(name);
  }, [draft, name]);
  return [draft, setDraft];
}
