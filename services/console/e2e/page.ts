/** Pages of tests: signed in, and failed by a policy violation, a foreign request or a page error. */
import AxeBuilder from "@axe-core/playwright";
import { expect, test as base, type BrowserContext, type Page, type Request } from "@playwright/test";

import { standalone } from "./standalone";
import { Wire } from "./wire";

export const REVENUE =
  "Which five customers brought the most revenue last quarter, and what share of the total is that?";
export const MAIL =
  "Send an email to Krishna Delta that the dosing heads come in the second week of July";

interface Fixtures {
  /** What must not happen on any page of the test; empty at its end. */
  offences: string[];
  origin: string;
  wire: Wire;
  /** REST behind the wire; the standalone's unless a test has another. */
  target: string;
  /** Another origin where the browser may go, such as an OpenID provider; its pages are not ours. */
  elsewhere: string;
}

export const test = base.extend<Fixtures>({
  elsewhere: ["", { option: true }],
  // eslint-disable-next-line no-empty-pattern -- Playwright reads the pattern to see what is needed
  target: async ({}, provide) => provide(standalone().rest_url),
  wire: async ({ target }, provide) => {
    const wire = new Wire(target);
    await provide(wire);
    await wire.close();
  },
  origin: async ({ wire }, provide) => provide(await wire.open()),
  baseURL: async ({ origin }, provide) => provide(origin),
  offences: [
    async ({ context, origin, elsewhere }, provide) => {
      const offences: string[] = [];
      context.on("request", (request) => {
        const url = new URL(request.url());
        const isLocal = url.protocol === "data:" || url.protocol === "blob:";
        const isTheirs = elsewhere !== "" && (url.origin === elsewhere || isOn(request, elsewhere));
        if (!isLocal && !isTheirs && url.origin !== origin) offences.push(`request of ${request.url()}`);
      });
      context.on("weberror", (error) => offences.push(`page error: ${String(error.error())}`));
      context.on("dialog", (dialog) => {
        offences.push(`dialog: ${dialog.message()}`);
        void dialog.dismiss();
      });
      await context.exposeFunction("bosViolation", (what: string) => {
        offences.push(`policy violation: ${what}`);
      });
      await context.addInitScript((theirs: string) => {
        if (location.origin === theirs) return;
        document.addEventListener("securitypolicyviolation", (event) => {
          const report = (globalThis as unknown as Record<string, (what: string) => void>)["bosViolation"];
          report?.(`${event.effectiveDirective} ${event.blockedURI} ${event.sample}`);
        });
      }, elsewhere);
      await provide(offences);
      expect(offences).toEqual([]);
    },
    { auto: true },
  ],
});

export { expect };

/** Whether a page of that origin asked. */
function isOn(request: Request, origin: string): boolean {
  return !request.isNavigationRequest() && request.frame().url().startsWith(`${origin}/`);
}

/** Signs the browser in by the API key of the local user, as the sign-in page does. */
export async function signIn(context: BrowserContext): Promise<void> {
  const { api_key } = standalone();
  const answer = await context.request.post("/v1/browserSession:logIn", {
    headers: { "Bos-Browser": "1" },
    data: { api_key },
  });
  expect(answer.ok(), await answer.text()).toBe(true);
}

/** Asks a question on a new page of the context, which is signed in. */
export async function ask(page: Page, question: string): Promise<void> {
  await page.goto("/");
  await page.getByLabel("Question", { exact: true }).fill(question);
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/c\//);
}

/** Fails on what axe finds serious or critical. */
export async function expectAccessible(page: Page): Promise<void> {
  const found = await new AxeBuilder({ page }).analyze();
  const serious = found.violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  expect(serious.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)])).toEqual([]);
}

/** Whether the browser's own search finds a text anywhere on the page, which it then selects. */
export function isFound(page: Page, text: string): Promise<boolean> {
  return page.evaluate((sought) => {
    type Find = (text: string, isCaseSensitive: boolean, isBackwards: boolean, wraps: boolean) => boolean;
    return (globalThis as unknown as { find: Find }).find(sought, false, false, true);
  }, text);
}
