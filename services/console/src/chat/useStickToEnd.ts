/** Keeps the end of a growing page in view, until the user scrolls away from it. */
import { useCallback, useEffect, useRef, useState, type RefObject } from "react";

const NEAR_PX = 60;

interface Sticking {
  frame: RefObject<HTMLDivElement | null>;
  isAtEnd: boolean;
  toEnd: () => void;
}

/** `isOn`: false where something else keeps the place, and only whether it is the end is reported. */
export function useStickToEnd(isOn = true): Sticking {
  const frame = useRef<HTMLDivElement>(null);
  const sticks = useRef(true);
  const isActive = useRef(isOn);
  useEffect(() => {
    isActive.current = isOn;
  }, [isOn]);
  const [isAtEnd, setAtEnd] = useState(true);
  useEffect(() => {
    const element = frame.current;
    const content = element?.firstElementChild;
    if (!element || !content) return;
    const isNear = () => element.scrollHeight - element.scrollTop - element.clientHeight < NEAR_PX;
    const onScroll = () => {
      sticks.current = isNear();
      setAtEnd(sticks.current);
    };
    const observer = new ResizeObserver(() => {
      if (sticks.current && isActive.current) element.scrollTop = element.scrollHeight;
      setAtEnd(isNear());
    });
    element.addEventListener("scroll", onScroll, { passive: true });
    observer.observe(content);
    observer.observe(element);
    return () => {
      element.removeEventListener("scroll", onScroll);
      observer.disconnect();
    };
  }, []);
  const toEnd = useCallback(() => {
    sticks.current = true;
    frame.current?.scrollTo({ top: frame.current.scrollHeight });
  }, []);
  return { frame, isAtEnd, toEnd };
}
