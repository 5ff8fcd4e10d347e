/** The user's conversations: search, open, rename, delete. */
import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { Link, useNavigate, useParams } from "@tanstack/react-router";
import { useDeferredValue, useState, type FormEvent } from "react";

import { api, dataOf } from "../api/client";
import { isNotServed } from "../api/errors";
import { conversations } from "../api/queries";
import type { Conversation } from "../api/types";
import { useText } from "../messages/useText";
import { Button, Failure, Field, Icon } from "../ui/controls";
import { Dialog, DialogActions } from "../ui/Dialog";
import { Menu } from "../ui/Menu";
import ui from "../ui/ui.module.css";
import styles from "../shell/shell.module.css";

type Intent = { kind: "rename" | "remove"; conversation: Conversation };

export function Conversations({ onOpen }: { onOpen: () => void }) {
  const text = useText();
  const [query, setQuery] = useState("");
  const [intent, setIntent] = useState<Intent>();
  const searched = useDeferredValue(query.trim());
  const { conversationId } = useParams({ strict: false });
  const found = useInfiniteQuery({
    ...conversations(searched),
    // A new conversation is listed once its first answer is recorded.
    refetchInterval: ({ state }) =>
      !isNotServed(state.error) &&
      (conversationId && !searched && !holds(state.data?.pages, conversationId) ? 2000 : 30_000),
  });
  const list = found.data?.pages.flatMap((page) => page.conversations) ?? [];
  const close = () => setIntent(undefined);
  if (isNotServed(found.error)) {
    return (
      <section className={styles.conversations} aria-label={text.conversations}>
        <p className={styles.hint}>{text.notKept}</p>
      </section>
    );
  }
  return (
    <section className={styles.conversations} aria-label={text.conversations}>
      <input
        id="search-conversations"
        className={ui.input}
        type="search"
        value={query}
        onChange={(event) => setQuery(event.target.value)}
        placeholder={text.searchConversations}
        aria-label={text.searchConversations}
      />
      {found.error && <Failure error={found.error} onRetry={() => void found.refetch()} />}
      {found.isSuccess && list.length === 0 && (
        <p className={styles.hint}>{searched ? text.noneFound : text.noConversations}</p>
      )}
      <ul className={styles.list}>
        {list.map((conversation) => (
          <li key={conversation.conversation_id} className={styles.row}>
            <Link
              to="/c/$conversationId"
              params={{ conversationId: conversation.conversation_id }}
              aria-current={conversation.conversation_id === conversationId ? "page" : undefined}
              onClick={onOpen}
              title={conversation.title}
            >
              <bdi>{conversation.title}</bdi>
            </Link>
            <Menu
              label={text.actionsOf(conversation.title)}
              icon={<Icon name="more" />}
              entries={[
                { label: text.rename, onChoose: () => setIntent({ kind: "rename", conversation }) },
                { label: text.remove, onChoose: () => setIntent({ kind: "remove", conversation }) },
              ]}
            />
          </li>
        ))}
        {found.hasNextPage && (
          <li>
            <Button kind="quiet" onClick={() => void found.fetchNextPage()}>
              {text.more}
            </Button>
          </li>
        )}
      </ul>
      {intent?.kind === "rename" && <Rename conversation={intent.conversation} onClose={close} />}
      {intent?.kind === "remove" && <Remove conversation={intent.conversation} onClose={close} />}
    </section>
  );
}

function holds(pages: { conversations: Conversation[] }[] | undefined, id: string): boolean {
  return pages?.some((page) => page.conversations.some((each) => each.conversation_id === id)) ?? true;
}

interface DialogProps {
  conversation: Conversation;
  onClose: () => void;
}

function Rename({ conversation, onClose }: DialogProps) {
  const text = useText();
  const client = useQueryClient();
  const rename = useMutation({
    mutationFn: (title: string) =>
      dataOf(
        api.PATCH("/v1/conversations/{conversation_id}", {
          params: { path: { conversation_id: conversation.conversation_id } },
          body: { title },
        }),
      ),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ["conversations"] });
      onClose();
    },
  });
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    rename.mutate(String(new FormData(event.currentTarget).get("title")).trim());
  };
  return (
    <Dialog title={text.rename} onClose={onClose}>
      <form onSubmit={submit} className={styles.form}>
        {rename.error && <Failure error={rename.error} />}
        <Field label={text.title} name="title" defaultValue={conversation.title} maxLength={200} required autoFocus />
        <DialogActions>
          <Button onClick={onClose}>{text.cancel}</Button>
          <Button kind="primary" type="submit" disabled={rename.isPending}>
            {text.save}
          </Button>
        </DialogActions>
      </form>
    </Dialog>
  );
}

function Remove({ conversation, onClose }: DialogProps) {
  const text = useText();
  const client = useQueryClient();
  const navigate = useNavigate();
  const { conversationId } = useParams({ strict: false });
  const remove = useMutation({
    mutationFn: () =>
      dataOf(
        api.DELETE("/v1/conversations/{conversation_id}", {
          params: { path: { conversation_id: conversation.conversation_id } },
        }),
      ),
    onSuccess: async () => {
      await client.invalidateQueries({ queryKey: ["conversations"] });
      onClose();
      if (conversationId === conversation.conversation_id) await navigate({ to: "/" });
    },
  });
  return (
    <Dialog title={text.removeConversation} onClose={onClose}>
      {remove.error && <Failure error={remove.error} />}
      <p>
        <bdi>{conversation.title}</bdi>
      </p>
      <p>{text.removeExplained}</p>
      <DialogActions>
        <Button onClick={onClose}>{text.cancel}</Button>
        <Button kind="danger" disabled={remove.isPending} onClick={() => remove.mutate()}>
          {text.remove}
        </Button>
      </DialogActions>
    </Dialog>
  );
}
