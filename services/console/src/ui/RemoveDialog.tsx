/** Asks before something is removed for good, and stays until that has succeeded. */
import { useMutation } from "@tanstack/react-query";

import { useText } from "../messages/useText";
import { Literal } from "../text/Literal";
import { Button, Failure } from "./controls";
import { Dialog, DialogActions } from "./Dialog";

interface Props {
  title: string;
  name: string;
  hint: string;
  label: string;
  onRemove: () => Promise<unknown>;
  /** After it was removed. */
  onRemoved: () => unknown;
  onClose: () => void;
}

export function RemoveDialog({ title, name, hint, label, onRemove, onRemoved, onClose }: Props) {
  const text = useText();
  const remove = useMutation({ mutationFn: onRemove, onSuccess: onRemoved });
  return (
    <Dialog title={title} onClose={onClose}>
      {remove.error && <Failure error={remove.error} />}
      <p>
        <Literal text={name} />
      </p>
      <p>{hint}</p>
      <DialogActions>
        <Button onClick={onClose}>{text.cancel}</Button>
        <Button kind="danger" disabled={remove.isPending} onClick={() => remove.mutate()}>
          {label}
        </Button>
      </DialogActions>
    </Dialog>
  );
}
