/** Draws charts beside the page, which can end this worker when a chart takes too long. */
import { draw } from "./draw";
import type { Answer, Task } from "./drawing";

addEventListener("message", (event: MessageEvent<Task>) => {
  const { spec, frame } = event.data;
  draw(spec, frame).then(
    (picture) => postMessage({ picture } satisfies Answer),
    () => postMessage({ picture: undefined } satisfies Answer),
  );
});
