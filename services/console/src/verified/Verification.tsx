/** Whether the query of a step is verified and for whom, and marking it. */
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";

import { useText } from "../messages/useText";
import { shownTime } from "../text/format";
import { Literal } from "../text/Literal";
import { Button, Failure, Icon } from "../ui/controls";
import { Dialog, DialogActions } from "../ui/Dialog";
import { Select } from "../ui/Select";
import ui from "../ui/ui.module.css";
import { useReviewing, useVerify, verifiedOfRun } from "./queries";
import { TakeBack } from "./TakeBack";
import styles from "./verified.module.css";

/** Longest query that can be verified, in characters. */
const LONGEST = 6000;

interface Props {
  runId: string;
  stepId: string;
  /** The query that ran. */
  sql: string;
}

export function Verification({ runId, stepId, sql }: Props) {
  const { verified: text } = useText();
  const found = useQuery(verifiedOfRun(runId));
  const [isMarking, setMarking] = useState(false);
  const those = (found.data ?? []).filter((each) => each.step_id === stepId);
  if (found.error) return <Failure error={found.error} onRetry={() => void found.refetch()} />;
  return (
    <div className={styles.verification} role="group" aria-label={text.state}>
      {those.map((each) => (
        <p key={each.query_id} className={styles.state}>
          <Icon name="check" />
          <span>
            <strong>{text.isVerified}</strong>{" "}
            <Literal text={each.group ? text.forGroup(each.group) : text.forMe} />
            {` · ${each.own ? text.you : text.member} · ${shownTime(each.create_time)}`}
            {each.corrected && ` · ${text.corrected}`}
          </span>
          <TakeBack verified={each} />
        </p>
      ))}
      <Button disabled={found.isPending} onClick={() => setMarking(true)}>
        {those.some((each) => each.own) ? text.change : text.mark}
      </Button>
      {isMarking && <Marking runId={runId} stepId={stepId} sql={sql} onClose={() => setMarking(false)} />}
    </div>
  );
}

function Marking({ runId, stepId, sql, onClose }: Props & { onClose: () => void }) {
  const all = useText();
  const text = all.verified;
  const { groups } = useReviewing();
  const verify = useVerify();
  const [group, setGroup] = useState("");
  const [right, setRight] = useState(sql);
  const readers = [
    { value: "", label: text.forMe },
    ...groups.map((name) => ({ value: name, label: text.forGroup(name) })),
  ];
  return (
    <Dialog title={text.mark} onClose={onClose} isWide>
      {verify.error && <Failure error={verify.error} />}
      <p>{text.markHint}</p>
      {groups.length > 0 && <Select label={text.readers} value={group} options={readers} onChoose={setGroup} />}
      <label className={ui.field}>
        <span>{text.query}</span>
        <textarea
          className={`${ui.input ?? ""} ${styles.sql ?? ""}`}
          value={right}
          maxLength={LONGEST}
          rows={10}
          spellCheck={false}
          onChange={(event) => setRight(event.target.value)}
        />
        <small>{text.queryHint}</small>
      </label>
      <DialogActions>
        <Button onClick={onClose}>{all.cancel}</Button>
        <Button
          kind="primary"
          disabled={verify.isPending || right.trim() === ""}
          onClick={() => verify.mutate({ runId, stepId, sql: right.trim(), group }, { onSuccess: onClose })}
        >
          {text.mark}
        </Button>
      </DialogActions>
    </Dialog>
  );
}
