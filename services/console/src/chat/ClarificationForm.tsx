/** Questions of a run to the user: one-click options, own words, or going on with the assumptions. */
import { useState, type FormEvent } from "react";

import type { Clarification } from "../api/types";
import { useText } from "../messages/useText";
import type { RunState } from "../run/state";
import { brand } from "../shell/brand";
import { Literal } from "../text/Literal";
import { Button } from "../ui/controls";
import ui from "../ui/ui.module.css";
import type { OnAsk } from "./ask";
import styles from "./chat.module.css";

interface Props {
  clarification: Clarification;
  state: RunState;
  onAsk: OnAsk;
}

export function ClarificationForm({ clarification, state, onAsk }: Props) {
  const text = useText();
  const { questions, assumptions } = clarification;
  const [replies, setReplies] = useState<string[]>([]);
  // Options may repeat content of others: what is made of them says so.
  const tainted = state.response?.tainted ?? false;
  const send = (reply: string) => onAsk({ question: reply, continues: state.runId, tainted });
  const choose = (index: number, reply: string) => {
    if (questions.length === 1) return send(reply);
    setReplies((before) => questions.map((_, at) => (at === index ? reply : (before[at] ?? ""))));
  };
  const submit = (event: FormEvent) => {
    event.preventDefault();
    send(joined(questions.map((each) => each.question), replies));
  };
  return (
    <form className={styles.clarification} onSubmit={submit} aria-label={text.clarification(brand.name)}>
      {questions.map((each, index) => (
        <fieldset key={index}>
          <legend>
            <Literal text={each.question} />
          </legend>
          <div className={styles.options}>
            {each.options.map((option) => (
              <Button
                key={option}
                aria-pressed={questions.length > 1 ? replies[index] === option : undefined}
                onClick={() => choose(index, option)}
              >
                <Literal text={option} />
              </Button>
            ))}
          </div>
          <label className={ui.field}>
            <small>{text.ownWords}</small>
            <input
              className={ui.input}
              value={replies[index] ?? ""}
              onChange={(event) => {
                const reply = event.target.value;
                setReplies((before) =>
                  questions.map((_, at) => (at === index ? reply : (before[at] ?? ""))),
                );
              }}
            />
          </label>
        </fieldset>
      ))}
      {assumptions.length > 0 && (
        <div>
          <small>{text.assumptions}</small>
          <ul>
            {assumptions.map((assumption) => (
              <li key={assumption}>
                <Literal text={assumption} />
              </li>
            ))}
          </ul>
        </div>
      )}
      <div className={styles.options}>
        <Button kind="primary" type="submit" disabled={!replies.some((reply) => reply.trim())}>
          {text.reply}
        </Button>
        {assumptions.length > 0 && (
          <Button kind="quiet" onClick={() => send(assumptions.join("\n"))}>
            {text.skipAssume}
          </Button>
        )}
      </div>
    </form>
  );
}

/** One text of several replies, each under its question; a single one stands alone. */
function joined(questions: string[], replies: string[]): string {
  if (questions.length === 1) return (replies[0] ?? "").trim();
  return questions
    .map((question, index) => [question, (replies[index] ?? "").trim()] as const)
    .filter(([, reply]) => reply)
    .map(([question, reply]) => `${question}\n${reply}`)
    .join("\n\n");
}
