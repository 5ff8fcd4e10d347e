/** Shows the pages to users who are signed in, and signing in to others. */
import { useQueryClient, type QueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState, type ReactNode } from "react";

import { me } from "../api/queries";
import { session } from "../api/session";
import { forgetDrafts } from "../chat/useDraft";
import { useText } from "../messages/useText";
import { Failure, Notice } from "../ui/controls";
import { Dialog } from "../ui/Dialog";
import { brand } from "./brand";
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
    if (!isOut) return;
    client.clear(); // nothing of a user stays for the next one
    forgetDrafts();
  }, [isOut, client]);
  const wasExpired = useRef(false);
  useEffect(() => {
    if (wasExpired.current && !expired) void leaveIfAnother(client);
    wasExpired.current = expired;
  }, [expired, client]);
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
            <img src={brand.logo} alt="" /> {brand.name}
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

/** Begins anew if the user who signed in over the page is not the one whose page it is. */
async function leaveIfAnother(client: QueryClient): Promise<void> {
  const before = client.getQueryData(me.queryKey)?.user_id;
  const now = await client.fetchQuery({ ...me, staleTime: 0 });
  if (before === undefined || now.user_id === before) return;
  forgetDrafts();
  location.assign("/");
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
