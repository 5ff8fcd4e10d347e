import { useSyncExternalStore } from "react";

import { preferences, type Preferences } from "./preferences";

/** What the user has set. */
export function usePreferences(): Preferences {
  return useSyncExternalStore(preferences.subscribe, preferences.read);
}
