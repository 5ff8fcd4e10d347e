/** The answer of a run: its text, and of a report the charts and sources beside what they belong to. */
import { useCallback } from "react";

import type { ReportSection, Response } from "../api/types";
import { Citation } from "../chat/Sources";
import { useText } from "../messages/useText";
import type { RunState } from "../run/state";
import { Literal } from "../text/Literal";
import { Markdown } from "../text/Markdown";
import { Notice } from "../ui/controls";
import { ChartFigure, Charts } from "./Charts";
import { answerParts, furtherHighlights, placedSections } from "./report";
import styles from "./report.module.css";

export function Answer({ state }: { state: RunState }) {
  const text = useText();
  const { response, answer } = state;
  if (!answer.text) return null;
  const hasFailed = state.status === "RUN_STATUS_FAILED" || state.status === "RUN_STATUS_CANCELLED";
  return (
    <section className={styles.answer} aria-label={text.answer} aria-busy={!response}>
      {hasFailed ? (
        <Notice kind="bad">
          <Literal text={answer.text} />
        </Notice>
      ) : (
        <AnswerText state={state} />
      )}
    </section>
  );
}

function AnswerText({ state }: { state: RunState }) {
  const text = useText();
  const { response, answer } = state;
  const sources = response?.sources;
  const renderCitation = useCallback(
    (number: number) => {
      const source = sources?.[number - 1];
      return source ? <Citation number={number} source={source} /> : null;
    },
    [sources],
  );
  const parts = answerParts(answer.text);
  const sections = response?.sections ?? [];
  const { placed, others } = placedSections(parts, sections);
  const highlights = furtherHighlights(answer.text, response?.highlights ?? []);
  return (
    <>
      {parts.map((part, index) => {
        const section = placed.get(index);
        const isOpening = index === 0 && part.heading === "" && placed.size > 0;
        return (
          <div key={index} className={styles.part} data-section={section !== undefined}>
            <div className={styles.finding}>
              {isOpening && <h3>{text.charts.findings}</h3>}
              <Markdown
                text={part.text}
                isGrowing={!response && index === parts.length - 1}
                renderCitation={renderCitation}
              />
              {section && <SectionSources section={section} response={response} />}
            </div>
            {section && <SectionCharts section={section} state={state} />}
          </div>
        );
      })}
      {others.map((section, index) => (
        <div key={`section ${String(index)}`} className={styles.part} data-section>
          <div className={styles.finding}>
            <h3>
              <Literal text={section.heading} />
            </h3>
            <Markdown text={section.finding} renderCitation={renderCitation} />
            <SectionSources section={section} response={response} />
          </div>
          <SectionCharts section={section} state={state} />
        </div>
      ))}
      {highlights.length > 0 && (
        <ul className={styles.highlights} aria-label={sections.length > 0 ? text.charts.findings : text.highlights}>
          {highlights.map((highlight) => (
            <li key={highlight}>
              <Literal text={highlight} />
            </li>
          ))}
        </ul>
      )}
    </>
  );
}

function SectionCharts({ section, state }: { section: ReportSection; state: RunState }) {
  if (section.charts.length === 0) return null;
  const charts = section.charts.map((place) => state.response?.charts[place - 1]);
  return (
    <div className={styles.sectionCharts}>
      {charts.map(
        (chart, index) =>
          chart && (
            <ChartFigure key={index} runId={state.runId} chart={chart} heading={section.heading} />
          ),
      )}
    </div>
  );
}

/** Numbers of the sources that a section rests on, each with its passage. */
function SectionSources({ section, response }: { section: ReportSection; response: Response | undefined }) {
  const text = useText();
  if (section.sources.length === 0) return null;
  return (
    <p className={styles.sectionSources}>
      <span className="visually-hidden">{text.charts.sectionSources}: </span>
      {section.sources.map((number) => {
        const source = response?.sources[number - 1];
        return source && <Citation key={number} number={number} source={source} />;
      })}
    </p>
  );
}

/** Charts of an answer that no section of it shows. */
export function FurtherCharts({ state }: { state: RunState }) {
  const { response } = state;
  if (!response) return null;
  const shown = new Set((response.sections ?? []).flatMap((section) => section.charts));
  return <Charts runId={state.runId} charts={response.charts.filter((_, index) => !shown.has(index + 1))} />;
}
