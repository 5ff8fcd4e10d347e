/** Words of the console in the language of the page. */
import { createContext, useContext } from "react";

import { en, type Messages } from "./en";

export const TextContext = createContext<Messages>(en);

export function useText(): Messages {
  return useContext(TextContext);
}
