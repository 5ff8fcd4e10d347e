/** What can be done with a document: read again, delete, with the question before it. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState, type ReactNode } from "react";

import { api, dataOf } from "../api/client";
import { useText } from "../messages/useText";
import { Failure } from "../ui/controls";
import { RemoveDialog } from "../ui/RemoveDialog";
import { replaceDocument, documentChunks, pendingDocuments, type Document } from "./queries";

export interface DocumentActions {
  readAgain: (document: Document) => void;
  remove: (document: Document) => void;
  /** What has to be shown: the question before a deletion, and why something failed. */
  dialogs: ReactNode;
}

export function useDocumentActions(onRemoved?: () => void): DocumentActions {
  const client = useQueryClient();
  const [leaving, setLeaving] = useState<Document>();
  const reindex = useMutation({
    mutationFn: ({ document_id }: Document) =>
      dataOf(api.POST("/v1/documents/{document_id}:reindex", { params: { path: { document_id } }, body: {} })),
    onSuccess: async (document) => {
      replaceDocument(client, document.document_id, document);
      await client.invalidateQueries({ queryKey: pendingDocuments().queryKey });
    },
  });
  return {
    readAgain: (document) => reindex.mutate(document),
    remove: setLeaving,
    dialogs: (
      <>
        {reindex.error && <Failure error={reindex.error} />}
        {leaving && (
          <Remove
            document={leaving}
            onClose={() => setLeaving(undefined)}
            onRemoved={() => {
              setLeaving(undefined);
              onRemoved?.();
            }}
          />
        )}
      </>
    ),
  };
}

interface RemoveProps {
  document: Document;
  onClose: () => void;
  onRemoved: () => void;
}

function Remove({ document, onClose, onRemoved }: RemoveProps) {
  const { knowledge: text } = useText();
  const client = useQueryClient();
  return (
    <RemoveDialog
      title={text.removeDocument}
      name={document.name}
      hint={text.removeDocumentHint}
      label={text.remove}
      onRemove={() =>
        dataOf(
          api.DELETE("/v1/documents/{document_id}", { params: { path: { document_id: document.document_id } } }),
        )
      }
      onRemoved={() => {
        replaceDocument(client, document.document_id, undefined);
        client.removeQueries({ queryKey: documentChunks(document).queryKey });
        onRemoved();
      }}
      onClose={onClose}
    />
  );
}
