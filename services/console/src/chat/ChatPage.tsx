/** A conversation: its questions with their answers, and where the next one is asked. */
import { useInfiniteQuery } from "@tanstack/react-query";
import { useNavigate, useParams } from "@tanstack/react-router";
import { useCallback, useState } from "react";

import { conversationRuns } from "../api/queries";
import { useText } from "../messages/useText";
import { brand } from "../shell/brand";
import { Literal } from "../text/Literal";
import { Button, Failure, Icon } from "../ui/controls";
import { QuestionBox } from "./QuestionBox";
import { Turn } from "./Turn";
import { useAsk, type Question } from "./ask";
import { useDraft } from "./useDraft";
import { useStickToEnd } from "./useStickToEnd";
import styles from "./chat.module.css";

/** A new conversation, whose id is made here, so that its address is known before its first answer. */
export function NewChatPage() {
  const [conversationId] = useState(() => crypto.randomUUID());
  return <Chat conversationId={conversationId} isNew />;
}

export function ChatPage() {
  const { conversationId } = useParams({ from: "/shell/c/$conversationId" });
  return <Chat key={conversationId} conversationId={conversationId} />;
}

function Chat({ conversationId, isNew = false }: { conversationId: string; isNew?: boolean }) {
  const text = useText();
  const navigate = useNavigate();
  const [draft, setDraft] = useDraft(isNew ? "new" : conversationId);
  const found = useInfiniteQuery({ ...conversationRuns(conversationId), enabled: !isNew });
  const ask = useAsk();
  const { frame, isAtEnd, toEnd } = useStickToEnd();
  const runs = (found.data?.pages.flatMap((page) => page.runs) ?? []).toReversed();
  const { mutate } = ask;
  const send = useCallback(
    (question: Omit<Question, "conversationId">, onError?: () => void) => {
      toEnd();
      mutate(
        { ...question, conversationId, requestId: crypto.randomUUID() },
        {
          ...(onError ? { onError } : {}),
          onSuccess: (run) => {
            if (!isNew) return;
            const id = run.conversation_id || conversationId;
            void navigate({ to: "/c/$conversationId", params: { conversationId: id } });
          },
        },
      );
    },
    [mutate, conversationId, isNew, navigate, toEnd],
  );
  const onEdit = useCallback(
    (question: string) => {
      setDraft(question);
      document.getElementById("question")?.focus();
    },
    [setDraft],
  );
  const askDraft = () => {
    const question = draft.trim();
    setDraft("");
    send({ question }, () => setDraft(question)); // nothing that was typed is lost
  };
  return (
    <div className={styles.chat}>
      <div className={styles.scroll} ref={frame}>
        <div className={styles.column}>
          {found.hasNextPage && (
            <Button kind="quiet" onClick={() => void found.fetchNextPage()}>
              {text.earlier}
            </Button>
          )}
          {found.error && <Failure error={found.error} onRetry={() => void found.refetch()} />}
          {found.isLoading && <p role="status">{text.loading}</p>}
          {isNew && !ask.isPending && (
            <div className={styles.welcome}>
              <h1>{text.welcome}</h1>
              <p>{text.welcomeHint(brand.name)}</p>
            </div>
          )}
          {runs.map((run, index) => (
            <Turn
              key={run.run_id}
              run={run}
              isLast={index === runs.length - 1}
              onAsk={send}
              onEdit={onEdit}
            />
          ))}
          {ask.isPending && (
            <p className={styles.question}>
              <Literal text={ask.variables.question} />
            </p>
          )}
          {ask.error && <Failure error={ask.error} />}
        </div>
      </div>
      <div className={styles.foot}>
        {!isAtEnd && (
          <Button className={styles.toEnd} aria-label={text.toEnd} onClick={toEnd}>
            <Icon name="down" />
          </Button>
        )}
        <QuestionBox value={draft} onChange={setDraft} onAsk={askDraft} isBusy={ask.isPending} />
      </div>
    </div>
  );
}
