/** Model calls, tokens and cost of each part of a run. */
import { useText } from "../messages/useText";
import type { RunState } from "../run/state";
import { Literal } from "../text/Literal";
import { grouped, partsOf, shownCost, type Part } from "./usage";
import styles from "./runs.module.css";

export function UsageTable({ state }: { state: RunState }) {
  const text = useText();
  const parts = partsOf(state);
  if (parts.every(({ counts }) => counts.calls === 0 && counts.abandoned === 0)) return null;
  return (
    <section aria-label={text.runs.modelUse}>
      <h2>{text.runs.modelUse}</h2>
      <div className={styles.wide} tabIndex={0} role="region" aria-label={text.runs.modelUse}>
        <table className={styles.usage}>
          <thead>
            <tr>
              <th scope="col">{text.runs.part}</th>
              <th scope="col">{text.runs.calls}</th>
              <th scope="col">{text.runs.sent}</th>
              <th scope="col">{text.runs.cached}</th>
              <th scope="col">{text.runs.received}</th>
              <th scope="col">{text.runs.cost}</th>
              <th scope="col">{text.runs.models}</th>
            </tr>
          </thead>
          <tbody>
            {parts.map((part) => (
              <Row key={`${part.kind} ${String(part.revision)} ${part.name}`} part={part} />
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Row({ part }: { part: Part }) {
  const text = useText();
  const { counts } = part;
  const abandoned =
    counts.abandoned > 0 ? ` (${text.runs.abandoned}: ${grouped(counts.abandoned)})` : "";
  return (
    <tr data-kind={part.kind}>
      <th scope="row">
        <Literal text={nameOf(part, text.runs, text.revision)} />
      </th>
      <td>{grouped(counts.calls) + abandoned}</td>
      <td>{grouped(counts.sent)}</td>
      <td>{grouped(counts.cached)}</td>
      <td>{grouped(counts.received)}</td>
      <td>{shownCost(counts.costMicros) ?? text.runs.costUnknown}</td>
      <td>
        <Literal text={counts.models.join(", ")} />
      </td>
    </tr>
  );
}

function nameOf(
  { kind, name, revision }: Part,
  words: ReturnType<typeof useText>["runs"],
  revisionWord: (number: number) => string,
): string {
  if (kind === "planning") return words.planning(revision);
  if (kind === "step") return revision > 0 ? `${name} · ${revisionWord(revision)}` : name;
  return kind === "rest" ? words.composing : words.total;
}
