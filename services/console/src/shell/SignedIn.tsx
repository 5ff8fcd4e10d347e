/** Shows the pages to users who are signed in, and signing in to others. */
import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState, type ReactNode } from "react";

import { session } from "../api/session";
import { useText } from "../messages/useText";
import { Failure, Notice } from "../ui/controls";
import { Dialog } from "../ui/Dialog";
import { SignInForm } from "./SignIn";
import { useSession } from "./useSession";
import styles from "./shell.module.css";

const OPEN_ID_PATH = "/sign-in/openid";

export function SignedIn({ children }: { children: ReactNode }) {
  const text = useText();
  const { current, expired, failure } = useSession();
  const client = useQueryClient();
  const isOut = current?.state === "SIGNED_OUT";
  useEffect(() => session.start(), []);
  useEffect(() => {
    if (isOut) client.clear(); // nothing of a user stays for the next one
  }, [isOut, client]);
  if (location.pathname === OPEN_ID_PATH) return <OpenIdReturn />;
  if (current === undefined) {
    return (
      <main className={styles.page}>
        {failure ? (
          <Failure error={failure} onRetry={() => void session.refresh()} />
        ) : (
          <p role="status">{text.loading}</p>
        )}
      </main>
    );
  }
  if (isOut) {
    return (
      <main className={styles.page}>
        <section className={styles.card}>
          <h1>
            <img src="/favicon.svg" alt="" /> {text.brand}
          </h1>
          <p>{text.signInIntro}</p>
          <SignInForm ways={current.sign_in ?? { api_key: true }} />
        </section>
      </main>
    );
  }
  return (
    <>
      {children}
      {expired && (
        <Dialog title={text.signIn}>
          <Notice kind="warn">{text.signInAgain}</Notice>
          <SignInForm ways={current.sign_in ?? { api_key: true }} />
        </Dialog>
      )}
    </>
  );
}

/** Where the OpenID provider sends the browser back to. */
function OpenIdReturn() {
  const text = useText();
  const [failure, setFailure] = useState<Error>();
  useEffect(() => {
    session.finishOpenId(new URLSearchParams(location.search)).then(
      () => location.replace("/"),
      (error: unknown) => setFailure(error as Error),
    );
  }, []);
  return (
    <main className={styles.page}>
      {failure ? (
        <Failure error={failure} onRetry={() => location.replace("/")} />
      ) : (
        <p role="status">{text.signingIn}</p>
      )}
    </main>
  );
}
