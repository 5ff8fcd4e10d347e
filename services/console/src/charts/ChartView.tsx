/** A chart of a run: the picture, its rows as a table, and both as files. Loaded when one is shown. */
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";

import type { Chart } from "../api/types";
import { ResultTable } from "../chat/ResultTable";
import { useText } from "../messages/useText";
import { Literal } from "../text/Literal";
import { Button, Failure, Notice } from "../ui/controls";
import { saveFile } from "../ui/useCopy";
import { pageDrawing, type Drawn } from "./drawing";
import { chartFile, toPng } from "./file";
import type { ChartSpec, Problem } from "./spec";
import type { Spot } from "./spots";
import { chartTable } from "./table";
import { readLook, useTheme, useWidth } from "./useLook";
import { Values } from "./Values";
import styles from "./charts.module.css";

const SAVED_PX = 760;
const SPEC_TYPE = "application/json";

/** One queue for all charts of the page, so that they are drawn one after another. */
const drawing = pageDrawing();

export interface ChartProps {
  runId: string;
  chart: Chart;
  /** A heading beside it that says its title already. */
  heading?: string;
}

export function ChartView({ runId, chart, heading }: ChartProps) {
  const text = useText();
  const found = useQuery(chartFile(runId, chart));
  const read = found.data?.read;
  const content = found.data?.content;
  const save = () => saveFile(`${stem(chart)}.vl.json`, SPEC_TYPE, content ?? "");
  return (
    <figure className={styles.chart} data-chart={read && ("spec" in read ? "accepted" : read.problem.kind)}>
      <figcaption className={chart.title === heading ? "visually-hidden" : styles.caption}>
        <Literal text={chart.title || text.charts.chart} />
      </figcaption>
      {found.isPending && (
        <p className={styles.frame} role="status">
          {text.charts.drawing}
        </p>
      )}
      {found.error && <Failure error={found.error} onRetry={() => void found.refetch()} />}
      {read && "problem" in read && (
        <>
          <NotDrawn problem={read.problem} />
          {content && (
            <div className={styles.bar}>
              <Button kind="quiet" onClick={save}>
                {text.charts.saveSpec}
              </Button>
            </div>
          )}
        </>
      )}
      {read && "spec" in read && <Shown chart={chart} spec={read.spec} onSaveSpec={save} />}
    </figure>
  );
}

function Shown({ chart, spec, onSaveSpec }: { chart: Chart; spec: ChartSpec; onSaveSpec: () => void }) {
  const text = useText();
  const frame = useRef<HTMLDivElement>(null);
  const width = useWidth(frame);
  const drawn = useDrawn(spec, width);
  const [isTableShown, setTableShown] = useState(false);
  const [failed, setFailed] = useState(false);
  const name = stem(chart);
  const save = async (kind: "png" | "svg") => {
    setFailed(false);
    const saved = await drawing.draw(
      { spec, frame: { look: readLook(), width: SAVED_PX, hasTitle: true } },
      new AbortController().signal,
    );
    if ("problem" in saved) throw new Error("not drawn");
    if (kind === "svg") saveFile(`${name}.svg`, "image/svg+xml", saved.picture.svg);
    else saveFile(`${name}.png`, "image/png", await toPng(saved.picture));
  };
  const onSave = (kind: "png" | "svg") => void save(kind).catch(() => setFailed(true));
  return (
    <>
      <div className={styles.frame} ref={frame}>
        {drawn === undefined && <p role="status">{text.charts.drawing}</p>}
        {drawn && "problem" in drawn && <NotDrawn problem={drawn.problem} />}
        {drawn && "address" in drawn && (
          <Values spots={drawn.spots} width={drawn.width}>
            <img
              src={drawn.address}
              width={drawn.width}
              height={drawn.height}
              alt={text.charts.alt(text.charts.types[chart.type] ?? text.charts.chart, chart.title)}
            />
          </Values>
        )}
      </div>
      <div className={styles.bar}>
        <Button kind="quiet" aria-expanded={isTableShown} onClick={() => setTableShown(!isTableShown)}>
          {isTableShown ? text.charts.hideTable : text.charts.showTable}
        </Button>
        <Button kind="quiet" aria-label={text.download("PNG")} onClick={() => onSave("png")}>
          PNG
        </Button>
        <Button kind="quiet" aria-label={text.download("SVG")} onClick={() => onSave("svg")}>
          SVG
        </Button>
        <Button kind="quiet" onClick={onSaveSpec}>
          {text.charts.saveSpec}
        </Button>
      </div>
      {failed && (
        <Notice kind="bad" role="alert">
          {text.charts.notSaved}
        </Notice>
      )}
      {isTableShown && <ResultTable table={chartTable(spec)} name={name} />}
    </>
  );
}

type Image = { address: string; width: number; height: number; spots: Spot[] } | { problem: Problem };

/** The picture at the address that this page gave it, drawn anew for each width and theme. */
function useDrawn(spec: ChartSpec, width: number): Image | undefined {
  const theme = useTheme();
  const [image, setImage] = useState<Image>();
  useEffect(() => {
    if (width === 0) return; // the element is not laid out yet
    const left = new AbortController();
    let address = "";
    const show = (drawn: Drawn) => {
      if (left.signal.aborted) return;
      if ("problem" in drawn) setImage(drawn);
      else {
        address = URL.createObjectURL(new Blob([drawn.picture.svg], { type: "image/svg+xml" }));
        const { width, height, spots } = drawn.picture;
        setImage({ address, width, height, spots });
      }
    };
    drawing
      .draw({ spec, frame: { look: readLook(), width, hasTitle: false } }, left.signal)
      .then(show, () => undefined); // the page has left it
    return () => {
      left.abort();
      // The picture on screen stays until the next one has replaced it.
      if (address) setTimeout(() => URL.revokeObjectURL(address), 1000);
    };
  }, [spec, width, theme]);
  return image;
}

function NotDrawn({ problem }: { problem: Problem }) {
  const text = useText();
  return (
    <Notice kind="warn">
      <span>
        {text.charts.problems[problem.kind]}
        {problem.kind === "refused" && (
          <>
            {" "}
            <code>
              <Literal text={problem.part} />
            </code>
          </>
        )}
      </span>
    </Notice>
  );
}

/** Name of the files, from that of the specification. */
function stem(chart: Chart): string {
  return (chart.specification?.name ?? "").replace(/(\.vl)?\.json$/, "") || "chart";
}
