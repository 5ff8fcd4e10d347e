/** A picture of a chart, with the values of the mark at the pointer. */
import { useState, type PointerEvent, type ReactNode } from "react";
import { createPortal } from "react-dom";

import { Literal } from "../text/Literal";
import { spotAt, type Spot } from "./spots";
import styles from "./charts.module.css";

interface Props {
  spots: readonly Spot[];
  /** Size of the picture, in its own pixels. */
  width: number;
  /** The picture. */
  children: ReactNode;
}

interface Shown {
  spot: Spot;
  /** Where the pointer is in the window, in pixels. */
  x: number;
  y: number;
}

export function Values({ spots, width, children }: Props) {
  const [shown, setShown] = useState<Shown>();
  const move = (event: PointerEvent<HTMLDivElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    const [x, y, scale] = [event.clientX, event.clientY, box.width / width];
    const spot = spotAt(spots, (x - box.left) / scale, (y - box.top) / scale);
    setShown(spot && { spot, x, y });
  };
  return (
    <div className={styles.picture} onPointerMove={move} onPointerDown={move} onPointerLeave={() => setShown(undefined)}>
      {children}
      {shown && createPortal(<Tip {...shown} />, document.body)}
    </div>
  );
}

/** Beside the pointer, on the side where there is more room. */
function Tip({ spot, x, y }: Shown) {
  return (
    <div
      className={styles.values}
      role="tooltip"
      data-left={x > innerWidth / 2}
      data-above={y > innerHeight / 2}
      style={{ left: x, top: y }}
    >
      <dl>
        {spot.values.map(([title, value], index) => (
          <div key={index}>
            <dt>
              <Literal text={title} />
            </dt>
            <dd>
              <Literal text={value} />
            </dd>
          </div>
        ))}
      </dl>
    </div>
  );
}
