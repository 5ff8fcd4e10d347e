/**
 * The one way to REST: same origin, cookie session, CSRF header, sign-in in place.
 *
 * A 401 while the user was signed in opens the sign-in dialog over the page; the call waits and is
 * repeated once, so that nothing that was typed or is shown gets lost.
 */
import { send } from "./send";
import { session } from "./session";

/** `fetch` with the rules above. Rejects as `fetch` does when there is no connection. */
export async function request(input: Request): Promise<globalThis.Response> {
  const again = input.clone();
  const response = await send(input);
  if (response.status !== 401) return response;
  await session.signInAgain(input.signal);
  return send(again);
}
