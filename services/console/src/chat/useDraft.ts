/** A question that is being written, kept in this tab until it is asked. */
import { useEffect, useState } from "react";

export function useDraft(key: string): [string, (draft: string) => void] {
  const name = `bos-draft-${key}`;
  const [draft, setDraft] = useState(() => sessionStorage.getItem(name) ?? "");
  useEffect(() => {
    if (draft) sessionStorage.setItem(name, draft);
    else sessionStorage.removeItem(name);
  }, [draft, name]);
  return [draft, setDraft];
}
