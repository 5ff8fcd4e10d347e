/** A result table: rows in view alone are drawn; sort, CSV and copy take all of them. */
import { useVirtualizer } from "@tanstack/react-virtual";
import { useMemo, useRef, useState } from "react";

import type { Table } from "../api/types";
import { useText } from "../messages/useText";
import { cellsOf, isNumeric, shownCell, sortedRows, toCsv, toTsv } from "../text/table";
import { Literal } from "../text/Literal";
import { Button } from "../ui/controls";
import { saveFile, useCopy } from "../ui/useCopy";
import styles from "./table.module.css";

const ROW_PX = 34;
/** Widths in characters between which a column is laid out, and rows that are measured for it. */
const NARROWEST = 6;
const WIDEST = 44;
const MEASURED_ROWS = 200;
/** Rows from which a table exceeds its frame, and cells up to which all of it can be drawn. */
const LONG = 20;
const MOST_CELLS = 50_000;

interface Order {
  column: number;
  isDescending: boolean;
}

export function ResultTable({ table, name }: { table: Table; name: string }) {
  const text = useText();
  const frame = useRef<HTMLDivElement>(null);
  const [order, setOrder] = useState<Order>();
  const [isCopied, copy] = useCopy();
  const [isWhole, setWhole] = useState(false);
  const rows = useMemo(
    () =>
      order
        ? sortedRows(table, order.column, order.isDescending)
        : table.rows.map((_, index) => index),
    [table, order],
  );
  const { columns, minWidth } = useMemo(() => gridColumns(table), [table]);
  // eslint-disable-next-line react-hooks/incompatible-library -- its object is used here alone
  const virtual = useVirtualizer({
    count: rows.length,
    getScrollElement: () => frame.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
  });
  const sort = (column: number) =>
    setOrder((before) => ({ column, isDescending: before?.column === column && !before.isDescending }));
  const isLong = rows.length > LONG && rows.length * table.columns.length <= MOST_CELLS;
  const drawn = isWhole && isLong ? rows.map((_, index) => ({ key: index, index })) : virtual.getVirtualItems();
  return (
    <section className={styles.result} aria-label={text.result}>
      <div className={styles.bar}>
        <span>
          {text.rows(table.rows.length)}
          {table.truncated && `, ${text.truncated}`}
        </span>
        {isLong && (
          <Button kind="quiet" title={isWhole ? text.runs.drawView : text.runs.drawAll} onClick={() => setWhole(!isWhole)}>
            {isWhole ? text.drawRowsInView : text.drawAllRows}
          </Button>
        )}
        <Button kind="quiet" onClick={() => copy(toTsv(table, rows))}>
          {isCopied ? text.copied : text.copyTable}
        </Button>
        <Button
          kind="quiet"
          onClick={() => saveFile(`${name}.csv`, "text/csv;charset=utf-8", `\uFEFF${toCsv(table, rows)}`)}
        >
          {text.saveCsv}
        </Button>
      </div>
      <div
        ref={frame}
        className={styles.frame}
        role="table"
        aria-label={text.result}
        aria-rowcount={rows.length + 1}
        tabIndex={0}
      >
        <div role="rowgroup" className={styles.head} style={{ minWidth }}>
          <div role="row" aria-rowindex={1} className={styles.row} style={{ gridTemplateColumns: columns }}>
            {table.columns.map((column, index) => (
              <div
                key={index}
                role="columnheader"
                className={styles.cell}
                data-number={isNumeric(column)}
                aria-sort={
                  order?.column !== index ? "none" : order.isDescending ? "descending" : "ascending"
                }
              >
                <button type="button" aria-label={text.sortBy(column.name)} onClick={() => sort(index)}>
                  <bdi>{column.name}</bdi>
                  <span aria-hidden="true">
                    {order?.column === index ? (order.isDescending ? " ↓" : " ↑") : ""}
                  </span>
                </button>
              </div>
            ))}
          </div>
        </div>
        <div role="rowgroup" className={styles.rows} style={{ height: virtual.getTotalSize(), minWidth }}>
          {drawn.map((item) => {
            const row = table.rows[rows[item.index] ?? 0];
            return (
              <div
                key={item.key}
                role="row"
                aria-rowindex={item.index + 2}
                className={styles.row}
                style={{ gridTemplateColumns: columns, transform: `translateY(${String(item.index * ROW_PX)}px)` }}
              >
                {row &&
                  cellsOf(row).map((cell, index) => {
                    const column = table.columns[index];
                    const shown = column ? shownCell(cell, column) : "";
                    return (
                      <div
                        key={index}
                        role="cell"
                        className={styles.cell}
                        data-number={column !== undefined && isNumeric(column)}
                        title={shown}
                      >
                        <Literal text={shown} />
                      </div>
                    );
                  })}
              </div>
            );
          })}
        </div>
      </div>
    </section>
  );
}

/** Widths of the columns by their longest texts: `grid-template-columns`, and the least of all. */
function gridColumns(table: Table): { columns: string; minWidth: string } {
  const widths = table.columns.map((column, index) => {
    const lengths = table.rows
      .slice(0, MEASURED_ROWS)
      .map((row) => shownCell(cellsOf(row)[index], column).length);
    const longest = Math.max(column.name.length + 2, ...lengths);
    return Math.min(WIDEST, Math.max(NARROWEST, longest)) + 4;
  });
  return {
    columns: widths.map((width) => `minmax(${String(width)}ch, ${String(width)}fr)`).join(" "),
    minWidth: `${String(widths.reduce((sum, width) => sum + width, 0))}ch`,
  };
}
