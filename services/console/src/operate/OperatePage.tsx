/** Operation: what operators see of the runs and data of all users. */
import { Navigate, useParams } from "@tanstack/react-router";

import { useText } from "../messages/useText";
import { Agents, Approvals, Ingestion, Spend, Storage } from "./Figures";
import { Frame } from "./parts";
import { RunOfUser, Runs } from "./Runs";

const SECTIONS = {
  runs: Runs,
  agents: Agents,
  spend: Spend,
  approvals: Approvals,
  ingestion: Ingestion,
  storage: Storage,
} as const;

type Section = keyof typeof SECTIONS;

export function OperatePage() {
  const { section, runId } = useParams({ strict: false });
  const words = useText().operate;
  if (!runId && !isSection(section)) {
    return <Navigate to="/operate/$section" params={{ section: "runs" }} replace />;
  }
  const Shown = runId || !isSection(section) ? RunOfUser : SECTIONS[section];
  return (
    <Frame
      title={words.title}
      role="operator"
      sections={(Object.keys(SECTIONS) as Section[]).map((name) => ({
        to: `/operate/${name}`,
        label: words.sections[name],
      }))}
    >
      <Shown key={section} />
    </Frame>
  );
}

function isSection(name: string | undefined): name is Section {
  return name !== undefined && Object.hasOwn(SECTIONS, name);
}
