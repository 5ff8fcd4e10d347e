/** A text as it is, such as a program or arguments, with a button that copies it. */
import { useText } from "../../messages/useText";
import { Literal } from "../../text/Literal";
import { Button } from "../../ui/controls";
import { useCopy } from "../../ui/useCopy";
import styles from "../runs.module.css";

/** Characters that are shown; a longer text is cut, with a word on its size, and copied whole. */
const MOST = 20_000;

export function Listing({ title, content }: { title: string; content: string }) {
  const text = useText();
  const [isCopied, copy] = useCopy();
  return (
    <figure className={styles.listing} aria-label={title}>
      <figcaption>
        {title}
        <Button kind="quiet" onClick={() => copy(content)}>
          {isCopied ? text.copied : text.copy}
        </Button>
      </figcaption>
      <pre tabIndex={0}>
        <Literal text={shortened(content)} />
      </pre>
    </figure>
  );
}

export function shortened(content: string): string {
  if (content.length <= MOST) return content;
  return `${content.slice(0, MOST)}\n… (${String(content.length)} characters)`;
}

/** A value of the API for reading. */
export function shownValue(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}
