/** API keys of the own account, or of service accounts: made, shown once, revoked. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";

import { api, dataOf } from "../api/client";
import { useText } from "../messages/useText";
import { shownTime } from "../text/format";
import { Literal } from "../text/Literal";
import { Button, Empty, Failure, Field } from "../ui/controls";
import { Dialog, DialogActions } from "../ui/Dialog";
import { Select } from "../ui/Select";
import { Answered, DataTable } from "./parts";
import { apiKeys, users, type ApiKey } from "./queries";
import { Secret } from "./Secret";
import styles from "./operate.module.css";

const SCOPES = [
  "runs.ask",
  "runs.read",
  "runs.operate",
  "files.read",
  "approvals.respond",
  "webhooks",
  "memory",
  "documents",
  "files",
  "account",
] as const;
type Scope = (typeof SCOPES)[number];

export function ApiKeys() {
  const words = useText().operate;
  const [userId, setUserId] = useState("");
  const found = useQuery(users({ page_size: 200 })).data?.users ?? [];
  return (
    <>
      <Select
        label={words.account}
        value={userId}
        options={[
          { value: "", label: words.ownKeys },
          ...found
            .filter((user) => user.service_account)
            .map((user) => ({ value: user.user_id, label: user.username })),
        ]}
        onChoose={setUserId}
      />
      <KeysOf key={userId} userId={userId} />
    </>
  );
}

function KeysOf({ userId }: { userId: string }) {
  const words = useText().operate;
  const client = useQueryClient();
  const call = useQuery(apiKeys(userId));
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<Scope[]>(["runs.ask", "runs.read"]);
  const [secret, setSecret] = useState<string>();
  const [revoked, setRevoked] = useState<ApiKey>();
  const make = useMutation({
    mutationFn: () =>
      dataOf(api.POST("/v1/apiKeys", { body: { name: name.trim(), scopes, ...(userId ? { user_id: userId } : {}) } })),
    onSuccess: (answer) => {
      setSecret(answer.secret);
      setName("");
      return client.invalidateQueries({ queryKey: apiKeys(userId).queryKey });
    },
  });
  const keys = call.data?.api_keys ?? [];
  return (
    <>
      <form
        className={styles.form}
        onSubmit={(event) => {
          event.preventDefault();
          make.mutate();
        }}
      >
        <Field
          label={words.keyName}
          value={name}
          maxLength={128}
          required
          autoComplete="off"
          onChange={(event) => setName(event.target.value)}
        />
        <fieldset className={styles.choices}>
          <legend>{words.scopes}</legend>
          {SCOPES.map((scope) => (
            <label key={scope} className={styles.choice}>
              <input
                type="checkbox"
                checked={scopes.includes(scope)}
                onChange={(event) =>
                  setScopes(
                    SCOPES.filter((each) => (each === scope ? event.target.checked : scopes.includes(each))),
                  )
                }
              />
              <code>{scope}</code>
            </label>
          ))}
        </fieldset>
        {make.error && <Failure error={make.error} />}
        <div>
          <Button kind="primary" type="submit" disabled={make.isPending || scopes.length === 0}>
            {words.makeKey}
          </Button>
        </div>
      </form>
      <Answered call={call}>
        {keys.length === 0 ? (
          <Empty title={words.noKeys} />
        ) : (
          <DataTable
            label={words.administration.keys}
            columns={[
              { name: words.name },
              { name: words.scopes },
              { name: words.made },
              { name: words.expires },
              { name: words.lastUse },
              { name: words.revoke },
            ]}
            rows={keys.map((each) => ({
              key: each.key_id,
              cells: [
                <Literal key="name" text={each.name} />,
                <code key="scopes">{each.scopes.join(", ")}</code>,
                shownTime(each.create_time),
                shownTime(each.expire_time),
                each.last_use_time ? shownTime(each.last_use_time) : words.never,
                <Button
                  key="revoke"
                  kind="danger"
                  aria-label={words.revokeOf(each.name)}
                  onClick={() => setRevoked(each)}
                >
                  {words.revoke}
                </Button>,
              ],
            }))}
          />
        )}
      </Answered>
      {secret && (
        <Dialog title={words.makeKey}>
          <Secret text={secret} onDone={() => setSecret(undefined)} />
        </Dialog>
      )}
      {revoked && <Revoke apiKey={revoked} onClose={() => setRevoked(undefined)} />}
    </>
  );
}

function Revoke({ apiKey, onClose }: { apiKey: ApiKey; onClose: () => void }) {
  const text = useText();
  const words = text.operate;
  const client = useQueryClient();
  const revoke = useMutation({
    mutationFn: () =>
      dataOf(
        api.POST("/v1/apiKeys/{key_id}:revoke", { params: { path: { key_id: apiKey.key_id } }, body: {} }),
      ),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ["administer", "keys"] });
      onClose();
    },
  });
  return (
    <Dialog title={words.revokeQuestion} onClose={onClose}>
      <p>
        <Literal text={apiKey.name} />
      </p>
      <p>{words.revokeHint}</p>
      {revoke.error && <Failure error={revoke.error} />}
      <DialogActions>
        <Button onClick={onClose}>{text.cancel}</Button>
        <Button kind="danger" disabled={revoke.isPending} onClick={() => revoke.mutate()}>
          {words.revoke}
        </Button>
      </DialogActions>
    </Dialog>
  );
}
