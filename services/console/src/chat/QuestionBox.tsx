/** Where a question is written. What was typed is kept for each conversation until it is asked. */
import { useEffect, useRef, type KeyboardEvent } from "react";

import { useText } from "../messages/useText";
import { Button, Icon } from "../ui/controls";
import styles from "./chat.module.css";

const TALLEST_PX = 240;

interface Props {
  value: string;
  onChange: (value: string) => void;
  onAsk: () => void;
  isBusy: boolean;
}

export function QuestionBox({ value, onChange, onAsk, isBusy }: Props) {
  const text = useText();
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => {
    const element = field.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${String(Math.min(TALLEST_PX, element.scrollHeight))}px`;
  }, [value]);
  const canAsk = value.trim() !== "" && !isBusy;
  const press = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    if (canAsk) onAsk();
  };
  return (
    <form
      className={styles.box}
      onSubmit={(event) => {
        event.preventDefault();
        if (canAsk) onAsk();
      }}
    >
      <label className="visually-hidden" htmlFor="question">
        {text.question}
      </label>
      <textarea
        id="question"
        ref={field}
        rows={1}
        dir="auto"
        value={value}
        maxLength={32_768}
        placeholder={text.askPlaceholder}
        title={text.askHint}
        autoFocus={matchMedia("(pointer: fine)").matches}
        onChange={(event) => onChange(event.target.value)}
        onKeyDown={press}
      />
      <Button kind="primary" type="submit" disabled={!canAsk} aria-label={text.ask}>
        <Icon name="send" />
      </Button>
    </form>
  );
}
