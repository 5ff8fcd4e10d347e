import { useSyncExternalStore } from "react";

import { session, type SessionState } from "../api/session";

/** The state of the browser's session. */
export function useSession(): SessionState {
  return useSyncExternalStore(session.subscribe, session.read);
}
