import { useMutation } from "@tanstack/react-query";

import { useText } from "../messages/useText";
import { Button, Failure, Icon } from "../ui/controls";
import { download, type FileContent } from "./content";

export function DownloadButton({ file, isShort = false }: { file: FileContent; isShort?: boolean }) {
  const { knowledge: text } = useText();
  const save = useMutation({ mutationFn: () => download(file) });
  return (
    <>
      {save.error && <Failure error={save.error} />}
      <Button
        kind={isShort ? "quiet" : "plain"}
        disabled={save.isPending}
        aria-label={text.downloadOf(file.name)}
        onClick={() => save.mutate()}
      >
        <Icon name="download" /> {!isShort && text.download}
      </Button>
    </>
  );
}
