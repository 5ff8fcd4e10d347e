import { useSyncExternalStore } from "react";

import type { Upload, Uploads } from "./queue";

/** The uploads of a list, as they change. */
export function useUploads<Result>(uploads: Uploads<Result>): readonly Upload<Result>[] {
  return useSyncExternalStore(uploads.subscribe, uploads.read);
}
