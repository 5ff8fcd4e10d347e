/** A conversation: its questions with their answers, and where the next one is asked. */
import { useInfiniteQuery } from "@tanstack/react-query";
import { useLocation, useNavigate, useParams } from "@tanstack/react-router";
import { useCallback, useEffect, useState } from "react";

import { conversationRuns } from "../api/queries";
import { useText } from "../messages/useText";
import { brand } from "../shell/brand";
import { Literal } from "../text/Literal";
import { Button, Failure, Icon, Notice } from "../ui/controls";
import { QuestionBox } from "./QuestionBox";
import { LONG, TurnsInView, WholeTurns } from "./Turns";
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
  const hash = useLocation({ select: (location) => location.hash });
  const wanted = hash.startsWith("run-") ? hash.slice("run-".length) : undefined;
  const runs = (found.data?.pages.flatMap((page) => page.runs) ?? []).toReversed();
  const [isWhole, setWhole] = useState(false);
  const isLong = runs.length > LONG || found.hasNextPage;
  const isInView = isLong && !isWhole;
  const { frame, isAtEnd, toEnd } = useStickToEnd(!isInView && wanted === undefined);
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = found;
  const isMissing = wanted !== undefined && !runs.some((run) => run.run_id === wanted);
  // What the address names is fetched, and so is all that shall be drawn.
  const mustFetch = hasNextPage && !isFetchingNextPage && !found.isError && (isMissing || isWhole);
  useEffect(() => {
    if (mustFetch) void fetchNextPage();
  }, [mustFetch, fetchNextPage]);
  const onNearBegin = () => {
    if (hasNextPage && !isFetchingNextPage) void fetchNextPage();
  };
  const Turns = isInView ? TurnsInView : WholeTurns;
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
          {isLong && (
            <Notice>
              <span>{isWhole ? text.runs.drawingAll : text.runs.longConversation}</span>
              <Button onClick={() => setWhole(!isWhole)}>
                {isWhole ? text.runs.drawView : text.runs.drawAll}
              </Button>
            </Notice>
          )}
          {hasNextPage && (
            <Button kind="quiet" disabled={isFetchingNextPage} onClick={() => void fetchNextPage()}>
              {isFetchingNextPage ? text.runs.loadingEarlier : text.earlier}
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
          <Turns
            runs={runs}
            frame={frame}
            wanted={wanted}
            onNearBegin={onNearBegin}
            onAsk={send}
            onEdit={onEdit}
          />
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
