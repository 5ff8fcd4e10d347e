/** Text exactly as it is: no Markdown, no HTML, and nothing invisible. */
import { reveal } from "./invisible";
import styles from "./text.module.css";

export function Literal({ text }: { text: string }) {
  return (
    <bdi className={styles.literal}>
      {reveal(text).map((span, index) =>
        span.isHidden ? (
          <mark key={index} className={styles.hidden}>
            {span.text}
          </mark>
        ) : (
          span.text
        ),
      )}
    </bdi>
  );
}
