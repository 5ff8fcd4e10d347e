/** What is long, and what breaks: pages of two gateways, one of which is killed. */
import type { Page } from "@playwright/test";

import { test } from "./harness";
import { expect, expectAccessible, isFound } from "./page";

const inView = (page: Page) => page.locator("[data-run]:visible");

/** Scrolls up as a person does who turns the wheel. */
function toBegin(element: Element): void {
  element.dispatchEvent(new WheelEvent("wheel", { deltaY: -1 }));
  element.scrollTop = 0;
}

test("a run of 200 steps is walked, found and opened, and only what is in view is drawn", async ({
  page,
  harness,
}) => {
  await page.goto(`/runs/${harness.long_run}`);
  await expect(page.getByText("200 of 200 steps have ended")).toBeVisible();
  // Earlier plans are folded up.
  const graph = page.getByRole("list", { name: "Graph" });
  await expect(graph).toHaveCount(1);
  await expect(graph.getByRole("link")).toHaveCount(50);
  await page.getByText(/^First plan/).click();
  await expect(graph).toHaveCount(2);
  await page.getByText(/^First plan/).click();

  await graph.getByRole("link").first().focus();
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowRight");
  await expect(graph.getByRole("link", { name: /^s3_20 / })).toBeFocused();
  await page.keyboard.press("Enter");
  const panels = page.locator("details[id^=step-]");
  await expect(page.locator("#step-3-s3_20 > summary")).toBeFocused();
  await expect(page.locator("#step-3-s3_20")).toContainText("called for s3_20");
  expect(await panels.count()).toBeLessThan(60);

  // The timeline leads to any step, and so does its address.
  await page.goto(`/runs/${harness.long_run}#step-0-last0`);
  await expect(page.locator("#step-0-last0 > summary")).toBeFocused();
  await expect(page.locator("#step-0-last0")).toContainText("HttpError: It did not work.");

  // The harness has no memory: the page says so, and not that an address is wrong.
  await expect(page.getByRole("region", { name: "Conversations" })).toHaveText(/^Conversations are not kept here/);
  await expect(page.getByText("There is no such path")).toHaveCount(0);

  await page.getByRole("searchbox", { name: /^Find a step/ }).fill("s2_37");
  await expect(panels).toHaveCount(1);
  await expect(panels).toContainText("s2_37");
  await expectAccessible(page);

  // Drawn whole, the browser's own search finds what was not in view, also what opened steps say.
  await page.getByRole("searchbox", { name: /^Find a step/ }).fill("");
  const steps = page.getByRole("region", { name: "Steps" }).first();
  const found = () => isFound(page, "called for s1_33");
  expect(await found()).toBe(false);
  await steps.getByRole("button", { name: "Draw all, for searching and printing" }).click();
  await expect(panels).toHaveCount(200);
  await steps.getByRole("button", { name: "Open all" }).click();
  await expect.poll(found).toBe(true);

  await page.getByRole("link", { name: "Memory" }).click();
  await expect(page.getByRole("main").getByText("This is not part of this installation.")).toBeVisible();
});

test("a conversation of 300 messages draws what is in view, and keeps its place", async ({
  page,
  harness,
}) => {
  const listed = await page.request.get(
    `${harness.rest_url}/v1/runs?conversation_id=${harness.conversation}&page_size=200`,
  );
  const { runs } = (await listed.json()) as { runs: { run_id: string; question: string }[] };
  expect(runs).toHaveLength(150);
  const [newest, oldest] = [runs[0], runs[149]];

  await page.goto(`/c/${harness.conversation}`);
  await expect(page.locator(`[data-run="${newest?.run_id ?? ""}"]`)).toBeInViewport();
  expect(await inView(page).count()).toBeLessThan(20);
  await expectAccessible(page);

  // Scrolling up fetches what is earlier, and moves nothing that is in view.
  const feed = page.getByRole("feed");
  const scroller = feed.locator("xpath=../..");
  await expect(feed).toHaveAttribute("data-turns", "20");
  await scroller.evaluate(toBegin);
  await expect(feed).not.toHaveAttribute("data-turns", "20");
  const anchor = page.locator(`[data-run="${runs[19]?.run_id ?? ""}"]`);
  await expect(anchor).toBeInViewport();

  // An address of one turn is found, however early it is.
  await page.goto(`/c/${harness.conversation}#run-${oldest?.run_id ?? ""}`);
  await page.reload();
  await expect(page.locator(`[data-run="${oldest?.run_id ?? ""}"]`)).toBeInViewport();
  await expect(feed).toHaveAttribute("data-turns", "150");
  await expect(page.getByRole("heading", { name: oldest?.question ?? "" })).toBeInViewport();
  expect(await inView(page).count()).toBeLessThan(20);

  await page.getByRole("button", { name: "Go to the end" }).click();
  await expect(page.locator(`[data-run="${newest?.run_id ?? ""}"]`)).toBeInViewport();

  // Drawn whole, all of it is there for the browser's own search.
  await scroller.evaluate(toBegin);
  await page.getByRole("button", { name: "Draw all, for searching and printing" }).click();
  await expect(page.locator("[data-run]")).toHaveCount(150);
  await expect(page.getByRole("heading", { name: runs[75]?.question ?? "" })).toHaveCount(1);
});

test("the open graph of a run follows its steps, from waiting to running to done", async ({ page, harness }) => {
  await harness.order("hold");
  await page.goto("/");
  await page.getByLabel("Question", { exact: true }).fill("Do one thing, then another");
  await page.keyboard.press("Enter");
  const runId = (await page.locator("[data-run]").getAttribute("data-run")) ?? "";
  await page.goto(`/runs/${runId}`);
  const graph = page.getByRole("list", { name: "Graph" }).getByRole("link");
  await expect(graph).toHaveText([/first.*running/, /second.*waiting.*after/]);
  await expect(page.getByText("0 of 2 steps have ended")).toBeVisible();
  await graph.first().evaluate((node) => (node.dataset["stays"] = "true"));
  await harness.order("go on");
  await expect(graph).toHaveText([/first.*succeeded/, /second.*succeeded.*after/]);
  await expect(page.getByText("2 of 2 steps have ended")).toBeVisible();
  await expect(page.getByRole("heading", { level: 1 }).locator("..")).toContainText("Succeeded");
  await expect(graph.first()).toHaveAttribute("data-stays", "true"); // neither reloaded nor drawn anew
});

test("the gateway is killed in the middle of an answer, and the page goes on at the other one", async ({
  page,
  harness,
}) => {
  await page.goto("/");
  await page.getByLabel("Question", { exact: true }).fill(harness.held);
  await page.keyboard.press("Enter");
  const answer = page.getByRole("region", { name: "Answer" });
  await expect(answer).toContainText("word29");
  await harness.order("kill");
  await harness.order("release");
  await expect(page.locator("[data-run]")).toHaveAttribute("data-status", "RUN_STATUS_SUCCEEDED");
  await expect(answer).toHaveText(harness.answer.trim());
  await expect(page.locator("[data-run]")).toHaveCount(1);
  await expect(page.getByText("Connection lost.")).toHaveCount(0);

  // Each event of the log came once, those of the second gateway behind those of the first.
  await page.getByRole("link", { name: "Open run" }).click();
  const events = page.getByRole("region", { name: "Events" });
  await expect(events).toContainText("run_resumed");
  await expect(events).toContainText("run_finished");
  const sequences = await events.locator("summary > span:first-child").allTextContents();
  const numbers = sequences.map(Number);
  expect(numbers).toEqual([...new Set(numbers)].sort((one, other) => one - other));
});
