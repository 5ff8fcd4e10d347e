/** Sources of an answer: numbers in the text that show the quoted passage, and the list below it. */
import { Popover } from "@base-ui/react/popover";
import { Link } from "@tanstack/react-router";

import type { Source } from "../api/types";
import { useText } from "../messages/useText";
import { linkTarget } from "../text/links";
import { Literal } from "../text/Literal";
import ui from "../ui/ui.module.css";
import styles from "./chat.module.css";

/** `[n]` in an answer; its passage shows on hover, and by click or Enter. */
export function Citation({ number, source }: { number: number; source: Source }) {
  const text = useText();
  return (
    <Popover.Root>
      <Popover.Trigger
        className={styles.citation}
        aria-label={text.citation(number, source.title)}
        openOnHover
        delay={150}
      >
        {number}
      </Popover.Trigger>
      <Popover.Portal>
        <Popover.Positioner sideOffset={6}>
          <Popover.Popup className={`${ui.popup ?? ""} ${styles.passage ?? ""}`}>
            <Passage source={source} />
          </Popover.Popup>
        </Popover.Positioner>
      </Popover.Portal>
    </Popover.Root>
  );
}

export function Sources({ sources }: { sources: Source[] }) {
  const text = useText();
  if (sources.length === 0) return null;
  return (
    <section className={styles.sources} aria-label={text.sources}>
      <h3>{text.sources}</h3>
      <ol>
        {sources.map((source, index) => (
          <li key={index}>
            <Passage source={source} />
          </li>
        ))}
      </ol>
    </section>
  );
}

function Passage({ source }: { source: Source }) {
  const text = useText();
  const target = linkTarget(source.uri);
  const place = [source.section, source.page > 0 ? text.page(source.page) : ""].filter(Boolean);
  return (
    <div className={styles.passageBody}>
      <div>
        <strong>
          <Literal text={source.title || source.reference} />
        </strong>{" "}
        <small>
          {text.sourceTypes[source.type]}
          {place.length > 0 && (
            <>
              {" · "}
              <Literal text={place.join(" · ")} />
            </>
          )}
        </small>
      </div>
      {source.excerpt && (
        <blockquote>
          <Literal text={source.excerpt} />
        </blockquote>
      )}
      {source.type === "SOURCE_TYPE_DOCUMENT" && source.reference && (
        <Link to="/passages/$chunkId" params={{ chunkId: source.reference }}>
          {text.knowledge.openPassage}
        </Link>
      )}
      {target && (
        <a href={target.href} target="_blank" rel="noopener noreferrer nofollow">
          <Literal text={target.host} />
        </a>
      )}
    </div>
  );
}
