import type { Page } from "@playwright/test";

import { expect } from "./page";

/** Fails if anything of a hostile text runs, loads, or leads away without saying where to. */
export async function expectInert(page: Page, schemes: string[] = []): Promise<void> {
  const found = await page.evaluate(() => {
    const all = [...document.querySelectorAll("#root *")];
    const handlers = all.filter((element) =>
      element.getAttributeNames().some((name) => name.startsWith("on")),
    );
    const active = document.querySelectorAll(
      "#root :is(script, iframe, object, embed, video, audio, style, link, meta, base, form[action], image)",
    );
    const images = [...document.querySelectorAll("#root img")].map((image) => image.getAttribute("src"));
    const links = [...document.querySelectorAll<HTMLAnchorElement>("#root a[target]")];
    return {
      pwned: "pwned" in globalThis,
      handlers: handlers.map((element) => element.outerHTML),
      active: [...active].map((element) => element.outerHTML),
      images: [...new Set(images)],
      schemes: [...new Set(links.map((link) => new URL(link.href).protocol))].sort(),
      unsafeLinks: links.filter((link) => !/noopener/.test(link.rel)).map((link) => link.outerHTML),
      // The host that is called is said beside the words of the link.
      hiddenHosts: links
        .filter((link) => !link.textContent.includes(new URL(link.href).host || link.pathname))
        .map((link) => link.outerHTML),
    };
  });
  expect(found).toEqual({
    pwned: false,
    handlers: [],
    active: [],
    images: ["/favicon.svg"],
    schemes,
    unsafeLinks: [],
    hiddenHosts: [],
  });
}
