/** What charts take from the page: the tokens of its theme, and the width that there is. */
import { useEffect, useState, useSyncExternalStore, type RefObject } from "react";

import type { Look } from "./look";

const SERIES = 8;
/** Widths are taken in steps, so that a chart is not drawn anew for each pixel. */
const STEP_PX = 20;

/** The theme's name, and again whenever it changes. */
export function useTheme(): string {
  return useSyncExternalStore(
    (listener) => {
      const observer = new MutationObserver(listener);
      observer.observe(document.documentElement, { attributeFilter: ["data-theme"] });
      return () => observer.disconnect();
    },
    () => document.documentElement.dataset["theme"] ?? "",
  );
}

/** Values of the tokens as they are now. */
export function readLook(): Look {
  const style = getComputedStyle(document.documentElement);
  const token = (name: string) => style.getPropertyValue(name).trim();
  return {
    text: token("--text"),
    muted: token("--muted"),
    line: token("--line"),
    background: token("--surface"),
    font: token("--font"),
    series: Array.from({ length: SERIES }, (_, index) => token(`--series-${String(index + 1)}`)),
  };
}

/** Width of an element's content in pixels, in steps; 0 before it is known. */
export function useWidth(element: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!element.current) return;
    const observer = new ResizeObserver(([entry]) => {
      setWidth(Math.floor((entry?.contentRect.width ?? 0) / STEP_PX) * STEP_PX);
    });
    observer.observe(element.current);
    return () => observer.disconnect();
  }, [element]);
  return width;
}
