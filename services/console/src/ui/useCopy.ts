/** Copying to the clipboard, with a word that it was done. */
import { useEffect, useState } from "react";

const SHOWN_MS = 1500;

/** Returns whether a text was copied lately, and a function that copies one. */
export function useCopy(): [boolean, (text: string) => void] {
  const [copied, setCopied] = useState(0);
  useEffect(() => {
    if (copied === 0) return;
    const timer = setTimeout(() => setCopied(0), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [copied]);
  const copy = (text: string) => {
    navigator.clipboard.writeText(text).then(
      () => setCopied((count) => count + 1),
      () => undefined, // the browser does not allow it here; the button says nothing
    );
  };
  return [copied > 0, copy];
}

/** Offers a text or a picture to be saved as a file. */
export function saveFile(name: string, mediaType: string, content: string | Blob): void {
  const address = URL.createObjectURL(new Blob([content], { type: mediaType }));
  const link = document.createElement("a");
  link.href = address;
  link.download = name;
  link.click();
  URL.revokeObjectURL(address);
}
