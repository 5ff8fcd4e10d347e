/** Pages by the keyboard alone: what Tab reaches, in which order, and whether focus is seen. */
import type { Locator, Page } from "@playwright/test";

import { expect } from "./page";

const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";
const MOST_STEPS = 100;

/** What had focus, one after the other; the page keeps it itself, so that Tab may be pressed at once. */
interface Walk {
  all: HTMLElement[];
  seen: { place: number; isSeen: boolean; html: string }[];
}

/** Records from now on what has focus in the main part. Returns how many elements can have it. */
function record(page: Page): Promise<number> {
  return page.evaluate((selector) => {
    const all = [...document.querySelectorAll<HTMLElement>(`#main :is(${selector})`)].filter(
      (each) => each.tabIndex >= 0 && !each.matches(":disabled") && each.checkVisibility(),
    );
    const walk: Walk = { all, seen: [] };
    Object.assign(globalThis, { walk });
    document.addEventListener("focusin", ({ target }) => {
      const element = target as HTMLElement;
      const { outlineStyle, outlineWidth } = getComputedStyle(element);
      const isOutlined = outlineStyle !== "none" && Number.parseFloat(outlineWidth) >= 1;
      const { width, height } = element.getBoundingClientRect();
      walk.seen.push({
        place: all.indexOf(element),
        isSeen: isOutlined && width > 1 && height > 1,
        html: element.outerHTML.slice(0, 200),
      });
    });
    return all.length;
  }, FOCUSABLE);
}

/** Goes through the main part of a page that was just opened: all is reached in its order, and is seen. */
export async function expectWalkable(page: Page): Promise<void> {
  await page.keyboard.press("Tab");
  await expect(page.getByRole("link", { name: "Skip to the content" })).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.locator("#main")).toBeFocused();
  const count = await record(page);
  expect(count).toBeGreaterThan(0);
  for (let place = 0; place < count; place += 1) await page.keyboard.press("Tab");
  const seen = await page.evaluate(() => (globalThis as unknown as { walk: Walk }).walk.seen);
  expect(seen.filter(({ isSeen }) => !isSeen)).toEqual([]);
  expect(seen.map(({ place }) => place)).toEqual(Array.from({ length: count }, (_, place) => place));
}

/** Presses Tab until an element has focus. */
export async function tabTo(page: Page, element: Locator): Promise<void> {
  for (let step = 0; step < MOST_STEPS; step += 1) {
    if (await element.evaluate((each) => each === document.activeElement)) return;
    await page.keyboard.press("Tab");
  }
  throw new Error(`Tab does not reach ${element.toString()}`);
}
