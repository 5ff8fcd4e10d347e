/** Signing in: password, API key or an OpenID provider, as the server offers; registering. */
import { useState, type FormEvent } from "react";

import { api, dataOf } from "../api/client";
import { session, type SignInWays } from "../api/session";
import { useText } from "../messages/useText";
import { Button, Failure, Field, Notice } from "../ui/controls";
import styles from "./shell.module.css";

type Way = "password" | "api_key" | "register";

export function SignInForm({ ways }: { ways: SignInWays }) {
  const text = useText();
  const first: Way = ways.password ? "password" : "api_key";
  const [way, setWay] = useState<Way>(first);
  const [failure, setFailure] = useState<Error>();
  const [isBusy, setBusy] = useState(false);
  const attempt = (action: () => Promise<void>) => {
    setBusy(true);
    setFailure(undefined);
    action()
      .catch((error: unknown) => setFailure(error as Error))
      .finally(() => setBusy(false));
  };
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const fields = Object.fromEntries(new FormData(event.currentTarget)) as Record<string, string>;
    attempt(() => submitted(way, fields));
  };
  const others: [Way, string, boolean | undefined][] = [
    ["password", text.toSignIn, ways.password],
    ["register", text.toRegister, ways.password],
    ["api_key", text.withKey, ways.api_key],
  ];
  return (
    <div className={styles.signIn}>
      {failure && <Failure error={failure} />}
      <form className={styles.form} onSubmit={submit} key={way}>
        {way === "api_key" ? (
          <Field label={text.apiKey} name="api_key" type="password" autoComplete="off" required autoFocus />
        ) : (
          <AccountFields isNew={way === "register"} />
        )}
        <Button kind="primary" type="submit" disabled={isBusy}>
          {isBusy ? text.signingIn : way === "register" ? text.register : text.signIn}
        </Button>
      </form>
      {ways.open_id && (
        <Button
          disabled={isBusy}
          onClick={() => attempt(async () => location.assign(await session.beginOpenId()))}
        >
          {text.withProvider(ways.open_id.name)}
        </Button>
      )}
      {others
        .filter(([name, , isOffered]) => isOffered && name !== way)
        .map(([name, label]) => (
          <Button key={name} kind="quiet" onClick={() => setWay(name)}>
            {label}
          </Button>
        ))}
      {ways.link && <Notice>{text.linkHint}</Notice>}
    </div>
  );
}

function AccountFields({ isNew }: { isNew: boolean }) {
  const text = useText();
  return (
    <>
      <Field label={text.username} name="username" autoComplete="username" required autoFocus />
      {isNew && (
        <>
          <Field label={text.email} name="email" type="email" autoComplete="email" required />
          <Field label={text.displayName} name="display_name" autoComplete="name" />
        </>
      )}
      <Field
        label={text.password}
        name="password"
        type="password"
        autoComplete={isNew ? "new-password" : "current-password"}
        required
      />
      {isNew && (
        <Field label={text.invitation} name="token" autoComplete="off" hint={text.invitationHint} />
      )}
    </>
  );
}

async function submitted(way: Way, fields: Record<string, string>): Promise<void> {
  const { username = "", password = "", api_key = "", email = "", display_name = "", token = "" } = fields;
  if (way === "api_key") return session.logIn({ api_key: api_key.trim() });
  if (way === "register") {
    await dataOf(
      api.POST("/v1/users", {
        body: { username, password, email, display_name, ...(token ? { invitation: token } : {}) },
      }),
    );
  }
  return session.logIn({ username, password });
}
