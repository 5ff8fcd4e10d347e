import { readFileSync } from "node:fs";

import type { Page } from "@playwright/test";

import { HOSTILE_CHARTS } from "./hostile-charts";
import { ask, expect, expectAccessible, signIn, test } from "./page";

const REPORT = "Give me a report on sales last year";
const LINE = "Show last year's revenue of each month as a line chart";

test.beforeEach(({ context }) => signIn(context));

/** Width in pixels at which a picture is shown; 0 if the browser could not read it. */
function shownWidth(page: Page): Promise<number> {
  return page
    .locator("figure img")
    .first()
    .evaluate((image: HTMLImageElement) => (image.complete && image.naturalWidth > 0 ? image.clientWidth : 0));
}

test("a chart is drawn in chat and run, is a table too, and is saved as PNG, SVG and specification", async ({
  page,
}) => {
  await ask(page, LINE);
  const chart = page.getByRole("figure", { name: "Revenue by month" });
  await expect(chart.getByRole("img", { name: "Line chart: Revenue by month" })).toBeVisible();
  await expect.poll(() => shownWidth(page)).toBeGreaterThan(400);
  // The values at the pointer, as text: some point of the line is near where it goes down.
  const values = page.getByRole("tooltip");
  const picture = await chart.getByRole("img").boundingBox();
  for (let down = 0; down < 1 && (await values.count()) === 0; down += 0.05) {
    for (const across of [0.5, 0.52, 0.54]) {
      if (!picture || (await values.count()) > 0) break;
      await page.mouse.move(picture.x + across * picture.width, picture.y + down * picture.height);
    }
  }
  await expect(values).toContainText(/Revenue.*\d/);
  await page.mouse.move(5, 5);
  await expect(values).toHaveCount(0);
  const light = await chart.getByRole("img").getAttribute("src");

  await chart.getByRole("button", { name: "Show as table" }).click();
  await expect(chart.getByRole("table").getByRole("row")).toHaveCount(13);
  await expect(chart.getByRole("row").nth(1)).toContainText("41,937,328.35");
  await expectAccessible(page);

  const saved = async (button: string) => {
    const saving = page.waitForEvent("download");
    await chart.getByRole("button", { name: button, exact: true }).click();
    const file = await saving;
    return { name: file.suggestedFilename(), content: readFileSync(await file.path()) };
  };
  const png = await saved("Download PNG");
  expect(png.name).toBe("revenue-by-month.png");
  expect(png.content.subarray(1, 4).toString()).toBe("PNG");
  const svg = await saved("Download SVG");
  expect(svg.content.toString()).toMatch(/^<svg.*Revenue by month/s);
  const spec = await saved("Specification");
  expect(spec.name).toBe("revenue-by-month.vl.json");
  expect(JSON.parse(spec.content.toString())).toMatchObject({ mark: { type: "line" } });

  await page.emulateMedia({ colorScheme: "dark" });
  await expect(chart.getByRole("img")).not.toHaveAttribute("src", light ?? "");
  await page.setViewportSize({ width: 390, height: 800 });
  await expect.poll(() => shownWidth(page)).toBeLessThan(390);
  await expect.poll(() => shownWidth(page)).toBeGreaterThan(200);

  await page.setViewportSize({ width: 1280, height: 850 });
  await page.getByRole("link", { name: "Open run" }).click();
  await expect(page.getByRole("img", { name: "Line chart: Revenue by month" })).toBeVisible();
  await expectAccessible(page);
});

test("a report shows its findings, and each section with its chart and sources beside it", async ({ page }) => {
  await ask(page, REPORT);
  const answer = page.getByRole("region", { name: "Answer" });
  await expect(answer.getByRole("figure")).toHaveCount(4);
  await expect(answer.getByRole("img")).toHaveCount(4);
  await expect(answer.getByRole("heading")).toHaveText([
    "Main findings",
    "Sales by month",
    "Sales by product group",
    "Sales by region and year",
    "Largest changes by customer",
  ]);
  const section = answer.locator("[data-section=true]").nth(2);
  await expect(section).toContainText("West India brought");
  await expect(section.getByRole("img")).toHaveAccessibleName("Bar chart: Sales by region and year");
  await expect(section.getByRole("button", { name: /^Source 5/ })).toBeVisible();
  await expect(page.getByRole("region", { name: "Charts" })).toHaveCount(0);
  await expect(page.getByRole("region", { name: "Follow-up questions" }).getByRole("button")).toHaveCount(2);
  await expectAccessible(page);
});

test(`${String(HOSTILE_CHARTS.length)} hostile specifications are inert, and the page stays in use`, async ({
  page,
}) => {
  const charts = HOSTILE_CHARTS.map(({ name, spec }, index) => ({
    title: name,
    type: "bar",
    x_column: "name",
    y_columns: ["value"],
    specification: {
      digest: `sha256:${String(index)}`,
      media_type: "application/vnd.vegalite.v6+json",
      name: "x.vl.json",
      // What an agent says of its size is not believed either.
      size_bytes: String(Math.min(spec.length, 1000)),
      tainted: true,
    },
    images: [],
  }));
  const run = {
    run_id: "hostile-charts",
    request_id: "",
    conversation_id: "hostile-charts",
    question: "Hostile charts",
    status: "RUN_STATUS_SUCCEEDED",
    create_time: "2026-06-15T12:00:00Z",
    last_sequence: "9",
    revision: 0,
    journal: [],
    response: {
      status: "RUN_STATUS_SUCCEEDED",
      answer: "Charts.",
      agent_results: [],
      sources: [],
      highlights: [],
      followups: [],
      sections: [],
      charts,
      tainted: true,
    },
  };
  await page.route(/\/v1\/runs\?/, (route) => route.fulfill({ json: { runs: [run], next_page_token: "" } }));
  await page.route(/\/v1\/runs\/hostile-charts$/, (route) => route.fulfill({ json: run }));
  await page.route(/\/v1\/runs\/hostile-charts\/files\//, (route) => {
    const index = Number(/\d+$/.exec(decodeURIComponent(route.request().url()))?.[0]);
    return route.fulfill({ contentType: "application/octet-stream", body: HOSTILE_CHARTS[index]?.spec ?? "" });
  });
  await page.goto("/c/hostile-charts");
  const figures = page.locator("figure");
  await expect(figures).toHaveCount(charts.length);
  for (const [index, { name, outcome }] of HOSTILE_CHARTS.entries()) {
    await expect(figures.nth(index), name).toHaveAttribute("data-chart", outcome);
  }
  // What was accepted is drawn, or said to be impossible.
  await expect(page.getByText("Drawing …")).toHaveCount(0);
  expect(
    await page.evaluate(() => ({
      pwned: "pwned" in globalThis,
      polluted: "polluted" in {},
      active: document.querySelectorAll("figure :is(script, iframe, a, image, canvas, object, embed, foreignObject)")
        .length,
      pictures: [...document.querySelectorAll("figure img")].map((image) => new URL((image as HTMLImageElement).src).protocol),
    })),
  ).toEqual({ pwned: false, polluted: false, active: 0, pictures: expect.arrayContaining(["blob:"]) as string[] });
  for (const picture of await page.locator("figure img").all()) {
    const svg = await picture.evaluate(async (image: HTMLImageElement) => {
      const canvas = document.createElement("canvas");
      canvas.getContext("2d")?.drawImage(image, 0, 0);
      return canvas.toDataURL().slice(0, 15); // refused if the picture had taken anything from elsewhere
    });
    expect(svg).toBe("data:image/png;");
  }
  // The page answers to the user all the time.
  await page.getByLabel("Question", { exact: true }).fill("still here");
  await expect(page.getByLabel("Question", { exact: true })).toHaveValue("still here");
});

test("no text becomes HTML or script: the policy refuses it, and other policies too", async ({ page, offences }) => {
  await page.goto("/");
  await expect(page.getByLabel("Question", { exact: true })).toBeVisible();
  const refused = await page.evaluate(() => {
    const tried = (what: () => unknown) => {
      try {
        what();
        return "done";
      } catch (error) {
        return (error as Error).name;
      }
    };
    const element = document.createElement("div");
    const html = "inner" + "HTML";
    const factory = (globalThis as unknown as { trustedTypes: { createPolicy: (name: string, rules: object) => object } })
      .trustedTypes;
    return [
      tried(() => Reflect.set(element, html, "<img src=x onerror='window.pwned = 1'>")),
      tried(() => new Worker("/assets/x.js")),
      tried(() => new DOMParser().parseFromString("<p>x</p>", "text/html")),
      tried(() => factory.createPolicy("other", {})),
      tried(() => factory.createPolicy("bos", {})),
    ];
  });
  expect(refused).toEqual(Array<string>(5).fill("TypeError"));
  await expect.poll(() => offences.length).toBe(5);
  for (const offence of offences.splice(0)) expect(offence).toMatch(/^policy violation: (require-)?trusted-types/);
});
