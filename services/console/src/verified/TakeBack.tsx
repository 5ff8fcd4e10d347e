/** Takes a verification back, after asking. */
import { useState } from "react";

import { useText } from "../messages/useText";
import { Button } from "../ui/controls";
import { RemoveDialog } from "../ui/RemoveDialog";
import { useReviewing, useUnverify, type VerifiedQuery } from "./queries";

export function TakeBack({ verified }: { verified: VerifiedQuery }) {
  const { verified: text } = useText();
  const { isReviewer } = useReviewing();
  const unverify = useUnverify();
  const [isAsking, setAsking] = useState(false);
  const close = () => setAsking(false);
  if (!verified.own && !isReviewer) return null;
  return (
    <>
      <Button kind="quiet" onClick={() => setAsking(true)}>
        {text.takeBack}
      </Button>
      {isAsking && (
        <RemoveDialog
          title={text.takeBackTitle}
          name={verified.question}
          hint={text.takeBackHint}
          label={text.takeBack}
          onRemove={() => unverify(verified.query_id)}
          onRemoved={close}
          onClose={close}
        />
      )}
    </>
  );
}
