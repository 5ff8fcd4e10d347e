/** Whether an answer helped; with reasons and a note if it did not. Chosen again, it is taken back. */
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState, type FormEvent } from "react";

import { api, dataOf } from "../api/client";
import { apiError } from "../api/errors";
import { storedRun } from "../api/queries";
import type { Feedback as Given } from "../api/types";
import { useText } from "../messages/useText";
import { Button, Failure, Icon } from "../ui/controls";
import { Dialog, DialogActions } from "../ui/Dialog";
import ui from "../ui/ui.module.css";
import styles from "./chat.module.css";

type Reason = Given["reasons"][number];

export function Feedback({ runId }: { runId: string }) {
  const text = useText();
  const client = useQueryClient();
  const rating = useQuery(storedRun(runId)).data?.feedback?.rating;
  const [isAsking, setAsking] = useState(false);
  const give = useMutation({
    mutationFn: (given: Pick<Given, "rating" | "reasons" | "note"> | undefined) =>
      given ? put(runId, given) : remove(runId),
    onSuccess: async () => {
      setAsking(false);
      await client.invalidateQueries({ queryKey: ["run", runId] });
    },
  });
  const rate = (chosen: Given["rating"]) => {
    if (chosen === rating) give.mutate(undefined);
    else if (chosen === "FEEDBACK_RATING_DOWN") setAsking(true);
    else give.mutate({ rating: chosen, reasons: [], note: "" });
  };
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    give.mutate({
      rating: "FEEDBACK_RATING_DOWN",
      reasons: form.getAll("reason") as Reason[],
      note: String(form.get("note")).trim(),
    });
  };
  const buttons = [
    ["FEEDBACK_RATING_UP", text.helpful],
    ["FEEDBACK_RATING_DOWN", text.notHelpful],
  ] as const;
  return (
    <>
      {buttons.map(([value, label]) => (
        <Button
          key={value}
          kind="quiet"
          aria-label={label}
          title={label}
          aria-pressed={rating === value}
          disabled={give.isPending}
          className={styles.rating}
          onClick={() => rate(value)}
        >
          <Icon name="up" flipped={value === "FEEDBACK_RATING_DOWN"} />
        </Button>
      ))}
      {give.error && !isAsking && <Failure error={give.error} />}
      {isAsking && (
        <Dialog title={text.feedbackTitle} onClose={() => setAsking(false)}>
          <form className={styles.feedback} onSubmit={submit}>
            {give.error && <Failure error={give.error} />}
            {(Object.keys(text.feedbackReasons) as (keyof typeof text.feedbackReasons)[]).map((reason) => (
              <label key={reason}>
                <input type="checkbox" name="reason" value={reason} /> {text.feedbackReasons[reason]}
              </label>
            ))}
            <label className={ui.field}>
              <span>{text.note}</span>
              <textarea className={ui.input} name="note" rows={3} maxLength={2000} />
            </label>
            <DialogActions>
              <Button onClick={() => setAsking(false)}>{text.cancel}</Button>
              <Button kind="primary" type="submit" disabled={give.isPending}>
                {text.send}
              </Button>
            </DialogActions>
          </form>
        </Dialog>
      )}
    </>
  );
}

function put(runId: string, given: Pick<Given, "rating" | "reasons" | "note">): Promise<unknown> {
  return dataOf(
    api.PUT("/v1/runs/{run_id}/feedback", { params: { path: { run_id: runId } }, body: given }),
  );
}

async function remove(runId: string): Promise<void> {
  const { response, error } = await api.DELETE("/v1/runs/{run_id}/feedback", {
    params: { path: { run_id: runId } },
  });
  if (!response.ok) throw apiError(response, error);
}
