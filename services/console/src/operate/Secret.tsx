/** A secret that is shown once: it is held by the page alone, and gone when the page is left. */
import { useText } from "../messages/useText";
import { Button, Notice } from "../ui/controls";
import { DialogActions } from "../ui/Dialog";
import { useCopy } from "../ui/useCopy";
import styles from "./operate.module.css";

export function Secret({ text: secret, onDone }: { text: string; onDone: () => void }) {
  const text = useText();
  const [isCopied, copy] = useCopy();
  return (
    <>
      <Notice kind="warn">{text.operate.shownOnce}</Notice>
      <code className={styles.secret} data-secret>
        {secret}
      </code>
      <DialogActions>
        <Button kind="primary" onClick={() => copy(secret)}>
          {isCopied ? text.copied : text.operate.copySecret}
        </Button>
        <Button onClick={onDone}>{text.operate.done}</Button>
      </DialogActions>
    </>
  );
}
