/** Two texts: side by side, with what differs marked by underline, strike and words, not by colour alone. */
import { diffLines, diffWordsWithSpace, type Change } from "diff";
import { useMemo } from "react";

import { useText } from "../../messages/useText";
import { Literal } from "../../text/Literal";
import { shortened } from "../step/Listing";
import styles from "./compare.module.css";

/** Longer texts are compared by lines, in which a change is coarser and found in no time. */
const MOST_WORDS = 4_000;
const TIMEOUT_MS = 200;

interface Props {
  title: string;
  left: string;
  right: string;
  isCode?: boolean;
}

export function Difference({ title, left, right, isCode = false }: Props) {
  const text = useText();
  const changes = useMemo(() => changesOf(left, right), [left, right]);
  const sides = [
    { name: text.runs.left, whole: left, word: text.runs.removed, isOwn: (each: Change) => each.removed },
    { name: text.runs.right, whole: right, word: text.runs.added, isOwn: (each: Change) => each.added },
  ];
  if (!left && !right) return null;
  const differs = left !== right;
  return (
    <section className={styles.difference} aria-label={title} data-differs={differs}>
      <h3>
        {title} {differs && <span className={styles.mark}>{text.runs.differs}</span>}
      </h3>
      {differs ? (
        <div className={styles.sides}>
          {sides.map(({ name, whole, word, isOwn }, side) => (
            <div key={name} className={isCode ? styles.code : styles.prose} role="group" aria-label={name}>
              {whole === "" && <span className={styles.none}>–</span>}
              {changes
                ? changes
                    .filter((each) => isOwn(each) || (!each.added && !each.removed))
                    .map((each, index) =>
                      isOwn(each) ? (
                        <Own key={index} side={side} word={word} value={each.value} />
                      ) : (
                        <Literal key={index} text={each.value} />
                      ),
                    )
                : <Literal text={shortened(whole)} />}
            </div>
          ))}
        </div>
      ) : (
        <div className={isCode ? styles.code : styles.prose}>
          <Literal text={shortened(left)} />
        </div>
      )}
    </section>
  );
}

function Own({ side, word, value }: { side: number; word: string; value: string }) {
  const content = (
    <>
      <span className="visually-hidden"> [{word}: </span>
      <Literal text={value} />
      <span className="visually-hidden">] </span>
    </>
  );
  return side === 0 ? <del>{content}</del> : <ins>{content}</ins>;
}

/** The changes, or undefined if the texts are too different to find them in time. */
function changesOf(left: string, right: string): Change[] | undefined {
  if (left === right) return [];
  const one = shortened(left);
  const other = shortened(right);
  const isLong = one.length + other.length > MOST_WORDS;
  return isLong
    ? diffLines(one, other, { timeout: TIMEOUT_MS })
    : diffWordsWithSpace(one, other, { timeout: TIMEOUT_MS });
}
