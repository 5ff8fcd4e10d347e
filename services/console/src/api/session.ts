/** The browser's session: whether a user is signed in, and how to sign in. */
import { apiError } from "./errors";
import { send } from "./send";

export interface SignInWays {
  password?: boolean;
  api_key?: boolean;
  link?: boolean;
  open_id?: { name: string };
}

export interface BrowserSession {
  state: "SIGNED_IN" | "SIGNED_OUT" | "NOT_NEEDED";
  expire_time?: string;
  sign_in?: SignInWays;
  /** Context of every question, such as the sample company's fixed today. */
  context?: Record<string, never>;
  /** Address of a trace, with {trace_id} in the place of its id. */
  trace_url?: string;
  /** Base address of Grafana, for pages of operators. */
  dashboards_url?: string;
}

export interface SessionState {
  /** Unset until the server has answered. */
  current: BrowserSession | undefined;
  /** The session ended under a page in use: the sign-in dialog lies over it. */
  expired: boolean;
  /** Why the server could not be asked. */
  failure: Error | undefined;
}

type Credentials = { username: string; password: string } | { api_key: string };

const PATH = "/v1/browserSession";
const REFRESH_MS = 4 * 60_000;

/** Holds the session's state, and notifies listeners when it changes. One per page. */
class Session {
  private state: SessionState = { current: undefined, expired: false, failure: undefined };
  private readonly listeners = new Set<() => void>();
  private waiting: (() => void)[] = [];

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
  readonly read = (): SessionState => this.state;

  /** Asks the server at once and then every few minutes, which renews the session; returns its stop. */
  start(): () => void {
    const refresh = () => void this.refresh();
    if (!this.redeemLink()) refresh();
    const timer = setInterval(refresh, REFRESH_MS);
    return () => clearInterval(timer);
  }

  async refresh(): Promise<void> {
    try {
      this.accept(await call("GET", ""));
    } catch (error) {
      // While the page is in use a failed renewal is no news; the next call shows what is wrong.
      if (this.state.current === undefined) this.set({ failure: error as Error });
    }
  }

  async logIn(credentials: Credentials): Promise<void> {
    this.accept(await call("POST", ":logIn", credentials));
  }

  async beginOpenId(): Promise<string> {
    const answer = await call<{ authorization_url: string }>("POST", ":beginOpenId", {});
    return answer.authorization_url;
  }

  async finishOpenId(query: URLSearchParams): Promise<void> {
    const body = Object.fromEntries(
      [["code", query.get("code")], ["state", query.get("state")], ["issuer", query.get("iss")]]
        .filter((each): each is [string, string] => each[1] !== null),
    );
    this.accept(await call("POST", ":finishOpenId", body));
  }

  async logOut(): Promise<void> {
    await call("POST", ":logOut", {});
    this.set({ current: undefined, expired: false });
    await this.refresh();
  }

  /** Resolves once the user has signed in again; rejects when the call was given up first. */
  signInAgain(signal?: AbortSignal): Promise<void> {
    if (this.state.current?.state === "SIGNED_IN") this.set({ expired: true });
    else void this.refresh();
    return new Promise((resolve, reject) => {
      this.waiting.push(resolve);
      signal?.addEventListener("abort", () => reject(signal.reason as Error), { once: true });
    });
  }

  /** Redeems the link that the command line printed; false if the address holds none. */
  private redeemLink(): boolean {
    const code = /^#sign-in=([\w-]+)$/.exec(location.hash)?.[1];
    if (code === undefined) return false;
    history.replaceState(history.state, "", location.pathname + location.search);
    call("POST", ":redeem", { code }).then(
      (answer) => this.accept(answer),
      () => void this.refresh(), // used up or too old: the page offers the other ways
    );
    return true;
  }

  private accept(current: BrowserSession): void {
    const isIn = current.state !== "SIGNED_OUT";
    // A session that ends by itself keeps the page, under the dialog; one that was ended does not.
    const expired = !isIn && this.state.current?.state === "SIGNED_IN";
    this.set(expired ? { expired } : { current, expired: false, failure: undefined });
    if (isIn) {
      for (const resume of this.waiting.splice(0)) resume();
    }
  }

  private set(change: Partial<SessionState>): void {
    this.state = { ...this.state, ...change };
    for (const listener of this.listeners) listener();
  }
}

async function call<Answer = BrowserSession>(
  method: "GET" | "POST",
  verb: string,
  body?: unknown,
): Promise<Answer> {
  const response = await send(
    new Request(`${PATH}${verb}`, {
      method,
      ...(body === undefined
        ? {}
        : { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } }),
    }),
  );
  const answer: unknown = await response.json().catch(() => undefined);
  if (!response.ok) throw apiError(response, answer);
  return answer as Answer;
}

export const session = new Session();
