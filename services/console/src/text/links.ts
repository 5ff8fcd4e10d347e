/** Addresses that a link may have. */

const SCHEMES = new Set(["http:", "https:", "mailto:"]);

export interface Target {
  href: string;
  /** Where the link leads, to be shown beside its text. */
  host: string;
}

/** Where an address of a model or a source leads; undefined if it may not become a link. */
export function linkTarget(address: string | undefined): Target | undefined {
  if (!address) return undefined;
  let url: URL;
  try {
    url = new URL(address); // addresses without a host are none: nothing here links into the console
  } catch {
    return undefined;
  }
  if (!SCHEMES.has(url.protocol) || url.username || url.password) return undefined;
  return { href: url.href, host: url.protocol === "mailto:" ? url.pathname : url.host };
}
