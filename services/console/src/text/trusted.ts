/**
 * Trusted Types: REST's policy lets no text become script, HTML or the address of a script, but for
 * addresses of this page's own files, which this one policy makes. It is made when the page starts, so that no
 * other code can make it.
 */

interface Policy {
  createScriptURL: (address: string) => string;
}

interface Factory {
  createPolicy: (name: string, rules: Policy) => Policy;
}

const RULES: Policy = {
  createScriptURL: (address) => {
    const url = new URL(address, location.href);
    if (url.origin !== location.origin || !/^https?:$/.test(url.protocol)) {
      throw new TypeError(`${url.origin} is not this page's origin`);
    }
    return url.href;
  },
};

const factory = (globalThis as { trustedTypes?: Factory }).trustedTypes;
/** Browsers without Trusted Types are held to the same rule. */
const policy = factory?.createPolicy("bos", RULES) ?? RULES;

/** Address of a script of this build, for `new Worker`. Raises `TypeError` for one of another origin. */
export function scriptAddress(address: string): string {
  return policy.createScriptURL(address);
}
