/** The step that the address names by its fragment, so that it can be shared. */
import { useLocation, useNavigate } from "@tanstack/react-router";
import { useCallback, useEffect, useState } from "react";

export interface Choice {
  key: string | undefined;
  /** Grows whenever a step is chosen, also the same one again. */
  count: number;
}

/** Returns what is chosen, and how to choose. The chosen panel gets the focus once it is drawn. */
export function useChosenStep(isDrawn: boolean): [Choice, (key: string) => void] {
  const hash = useLocation({ select: (location) => location.hash });
  const navigate = useNavigate();
  const [count, setCount] = useState(0);
  const key = hash.startsWith("step-") ? hash : undefined;
  const choose = useCallback(
    (chosen: string) => {
      void navigate({
        to: ".",
        hash: chosen,
        replace: true,
        resetScroll: false,
        hashScrollIntoView: false,
      });
      setCount((before) => before + 1);
    },
    [navigate],
  );
  useEffect(() => {
    if (key === undefined || !isDrawn) return undefined;
    return whenDrawn(key, (panel) => {
      panel.scrollIntoView({ block: "start" });
      panel.querySelector("summary")?.focus({ preventScroll: true });
    });
  }, [key, count, isDrawn]);
  return [{ key, count }, choose];
}

/** Calls back once the element exists; a long list draws it only after it has scrolled there. */
function whenDrawn(id: string, found: (element: HTMLElement) => void): () => void {
  const look = () => {
    const element = document.getElementById(id);
    if (element) found(element);
    return element !== null;
  };
  const observer = new MutationObserver(() => {
    if (look()) observer.disconnect();
  });
  if (!look()) observer.observe(document.body, { childList: true, subtree: true });
  return () => observer.disconnect();
}
