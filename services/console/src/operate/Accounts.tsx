/** Accounts with their roles and groups; inviting people; accounts for services. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";

import { api, dataOf } from "../api/client";
import { me } from "../api/queries";
import type { User } from "../api/types";
import { useText } from "../messages/useText";
import { shownTime } from "../text/format";
import { Literal } from "../text/Literal";
import { Button, Empty, Failure, Field, Notice } from "../ui/controls";
import { Dialog, DialogActions } from "../ui/Dialog";
import { Answered, DataTable, NoRows, Pager, usePages } from "./parts";
import { invitations, users } from "./queries";
import { Secret } from "./Secret";
import { ROLES, type Role } from "./useRoles";
import styles from "./operate.module.css";

export function Users() {
  const words = useText().operate;
  const pages = usePages();
  const [username, setUsername] = useState("");
  const [edited, setEdited] = useState<User>();
  const [isAdding, setAdding] = useState(false);
  const call = useQuery(users({ page_token: pages.token, ...(username ? { username } : {}) }));
  const found = call.data?.users ?? [];
  const next = call.isPlaceholderData ? undefined : call.data?.next_page_token;
  return (
    <>
      <form
        className={styles.filters}
        onSubmit={(event) => {
          event.preventDefault();
          setUsername(String(new FormData(event.currentTarget).get("username") ?? "").trim());
          pages.reset();
        }}
      >
        <Field label={words.username} name="username" maxLength={64} autoComplete="off" />
        <Button type="submit">{words.filter}</Button>
        <Button onClick={() => setAdding(true)}>{words.addService}</Button>
      </form>
      <Answered call={call}>
        {found.length === 0 ? (
          <NoRows next={next} isFiltered={username !== ""} />
        ) : (
          <DataTable
            label={words.administration.users}
            columns={[
              { name: words.username },
              { name: words.name },
              { name: words.email },
              { name: words.roles },
              { name: words.groups },
              { name: words.accountState },
            ]}
            rows={found.map((user) => ({
              key: user.user_id,
              cells: [
                <Button key="edit" aria-label={words.edit(user.username)} onClick={() => setEdited(user)}>
                  <Literal text={user.username} />
                </Button>,
                <Literal key="name" text={user.display_name} />,
                <Literal key="email" text={user.email} />,
                user.roles.map((role) => words.roleNames[role as Role] ?? role).join(", "),
                <Literal key="groups" text={user.groups.join(", ")} />,
                stateOf(user, words),
              ],
            }))}
          />
        )}
        <Pager number={pages.number} next={next} turn={pages.turn} />
      </Answered>
      {edited && <Rights user={edited} onClose={() => setEdited(undefined)} />}
      {isAdding && <AddService onClose={() => setAdding(false)} />}
    </>
  );
}

function stateOf(user: User, words: ReturnType<typeof useText>["operate"]): string {
  const state = user.deleting ? words.deleting : user.active ? words.active : words.inactive;
  return user.service_account ? `${state}, ${words.service}` : state;
}

/** Groups as they are written in a field, separated by commas. */
export function groupsOf(text: string): string[] {
  return [...new Set(text.split(",").map((each) => each.trim()))].filter((each) => each !== "");
}

interface RoleChoicesProps {
  chosen: readonly string[];
  onChange: (roles: Role[]) => void;
  offered?: readonly Role[];
}

function RoleChoices({ chosen, onChange, offered = ROLES }: RoleChoicesProps) {
  const words = useText().operate;
  return (
    <fieldset className={styles.choices}>
      <legend>{words.roles}</legend>
      {offered.map((role) => (
        <label key={role} className={styles.choice}>
          <input
            type="checkbox"
            checked={chosen.includes(role)}
            onChange={(event) =>
              onChange(offered.filter((each) => (each === role ? event.target.checked : chosen.includes(each))))
            }
          />
          <span>
            {words.roleNames[role]} <small>{words.roleHints[role]}</small>
          </span>
        </label>
      ))}
    </fieldset>
  );
}

function Rights({ user, onClose }: { user: User; onClose: () => void }) {
  const text = useText();
  const words = text.operate;
  const client = useQueryClient();
  const own = useQuery(me).data?.user_id === user.user_id;
  const [roles, setRoles] = useState<readonly string[]>(user.roles);
  const [groups, setGroups] = useState(user.groups.join(", "));
  const [code, setCode] = useState<string>();
  const path = { params: { path: { user_id: user.user_id } } };
  const changed = async () => {
    await client.invalidateQueries({ queryKey: ["administer"] });
    onClose();
  };
  const save = useMutation({
    mutationFn: async () => {
      await dataOf(
        api.POST("/v1/users/{user_id}:setRoles", { ...path, body: { roles: roles as Role[] } }),
      );
      await dataOf(api.POST("/v1/users/{user_id}:setGroups", { ...path, body: { groups: groupsOf(groups) } }));
    },
    onSuccess: changed,
  });
  const turn = useMutation({
    mutationFn: () =>
      dataOf(
        user.active
          ? api.POST("/v1/users/{user_id}:deactivate", { ...path, body: {} })
          : api.POST("/v1/users/{user_id}:reactivate", { ...path, body: {} }),
      ),
    onSuccess: changed,
  });
  const reset = useMutation({
    mutationFn: () => dataOf(api.POST("/v1/users/{user_id}:createPasswordReset", { ...path, body: {} })),
    onSuccess: (answer) => setCode(answer.code),
  });
  const failure = save.error ?? turn.error ?? reset.error;
  return (
    <Dialog title={words.rights(user.username)} onClose={onClose}>
      {code ? (
        <Secret text={code} onDone={onClose} />
      ) : (
        <>
          {own && <Notice kind="warn">{words.ownRights}</Notice>}
          <RoleChoices chosen={roles} onChange={setRoles} />
          <Field
            label={words.groups}
            hint={words.groupsHint}
            value={groups}
            maxLength={2048}
            autoComplete="off"
            onChange={(event) => setGroups(event.target.value)}
          />
          {failure && <Failure error={failure} />}
          <DialogActions>
            <Button onClick={onClose}>{text.cancel}</Button>
            <Button kind="primary" disabled={save.isPending} onClick={() => save.mutate()}>
              {text.save}
            </Button>
          </DialogActions>
          {!user.service_account && (
            <Button disabled={reset.isPending} onClick={() => reset.mutate()}>
              {words.resetPassword}
            </Button>
          )}
          {!own && (
            <Button
              kind={user.active ? "danger" : "plain"}
              title={user.active ? words.deactivateHint : undefined}
              disabled={turn.isPending}
              onClick={() => turn.mutate()}
            >
              {user.active ? words.deactivate : words.reactivate}
            </Button>
          )}
        </>
      )}
    </Dialog>
  );
}

/** Roles that a service account may have: it cannot be an administrator. */
const SERVICE_ROLES = ["user", "approver", "operator"] as const;

function AddService({ onClose }: { onClose: () => void }) {
  const text = useText();
  const words = text.operate;
  const client = useQueryClient();
  const [name, setName] = useState("");
  const [roles, setRoles] = useState<Role[]>(["user"]);
  const add = useMutation({
    mutationFn: () =>
      dataOf(
        api.POST("/v1/users:createServiceAccount", {
          body: { username: name.trim(), roles: roles as (typeof SERVICE_ROLES)[number][] },
        }),
      ),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ["administer"] });
      onClose();
    },
  });
  return (
    <Dialog title={words.addService} onClose={onClose}>
      <Field
        label={words.serviceName}
        value={name}
        maxLength={64}
        autoComplete="off"
        onChange={(event) => setName(event.target.value)}
      />
      <RoleChoices chosen={roles} onChange={setRoles} offered={SERVICE_ROLES} />
      {add.error && <Failure error={add.error} />}
      <DialogActions>
        <Button onClick={onClose}>{text.cancel}</Button>
        <Button kind="primary" disabled={add.isPending || name.trim() === ""} onClick={() => add.mutate()}>
          {text.save}
        </Button>
      </DialogActions>
    </Dialog>
  );
}

export function Invitations() {
  const text = useText();
  const words = text.operate;
  const client = useQueryClient();
  const call = useQuery(invitations);
  const [roles, setRoles] = useState<Role[]>(["user"]);
  const [code, setCode] = useState<string>();
  const invite = useMutation({
    mutationFn: (groups: string[]) => dataOf(api.POST("/v1/invitations", { body: { roles, groups } })),
    onSuccess: (answer) => {
      setCode(answer.code);
      return client.invalidateQueries({ queryKey: invitations.queryKey });
    },
  });
  const revoke = useMutation({
    mutationFn: (invitationId: string) =>
      dataOf(
        api.POST("/v1/invitations/{invitation_id}:revoke", {
          params: { path: { invitation_id: invitationId } },
          body: {},
        }),
      ),
    onSuccess: () => client.invalidateQueries({ queryKey: invitations.queryKey }),
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    invite.mutate(groupsOf(String(new FormData(event.currentTarget).get("groups") ?? "")));
  };
  const found = call.data?.invitations ?? [];
  return (
    <>
      <form className={styles.form} onSubmit={submit}>
        <p className={styles.muted}>{words.inviteHint}</p>
        <RoleChoices chosen={roles} onChange={setRoles} />
        <Field label={words.groups} name="groups" hint={words.groupsHint} maxLength={2048} autoComplete="off" />
        {invite.error && <Failure error={invite.error} />}
        <div>
          <Button kind="primary" type="submit" disabled={invite.isPending}>
            {words.invite}
          </Button>
        </div>
      </form>
      {revoke.error && <Failure error={revoke.error} />}
      <Answered call={call}>
        {found.length === 0 ? (
          <Empty title={words.noInvitations} />
        ) : (
          <DataTable
            label={words.administration.invitations}
            columns={[
              { name: words.made },
              { name: words.expires },
              { name: words.roles },
              { name: words.groups },
              { name: words.revoke },
            ]}
            rows={found.map((each) => ({
              key: each.invitation_id,
              cells: [
                shownTime(each.create_time),
                shownTime(each.expire_time),
                each.roles.map((role) => words.roleNames[role as Role] ?? role).join(", "),
                <Literal key="groups" text={each.groups.join(", ")} />,
                <Button
                  key="revoke"
                  kind="danger"
                  disabled={revoke.isPending}
                  onClick={() => revoke.mutate(each.invitation_id)}
                >
                  {words.revoke}
                </Button>,
              ],
            }))}
          />
        )}
      </Answered>
      {code && (
        <Dialog title={words.code}>
          <Secret text={code} onDone={() => setCode(undefined)} />
        </Dialog>
      )}
    </>
  );
}
