/** Charts, whose code is loaded with the first one that is shown. */
import { lazy, Suspense } from "react";

import type { Chart } from "../api/types";
import { useText } from "../messages/useText";
import type { ChartProps } from "./ChartView";
import styles from "./charts.module.css";

const View = lazy(async () => ({ default: (await import("./ChartView")).ChartView }));

/** One chart of a run. */
export function ChartFigure(props: ChartProps) {
  const text = useText();
  return (
    <Suspense
      fallback={
        <p className={`${styles.chart ?? ""} ${styles.frame ?? ""}`} role="status">
          {text.charts.drawing}
        </p>
      }
    >
      <View {...props} />
    </Suspense>
  );
}

/** Charts of an answer or of a step; nothing if there are none. */
export function Charts({ runId, charts }: { runId: string; charts: Chart[] }) {
  const text = useText();
  if (charts.length === 0) return null;
  return (
    <section className={styles.charts} aria-label={text.charts.title}>
      {charts.map((chart, index) => (
        <ChartFigure key={index} runId={runId} chart={chart} />
      ))}
    </section>
  );
}
