/** Administration: accounts, invitations, API keys, audit log. */
import { Navigate, useParams } from "@tanstack/react-router";

import { useText } from "../messages/useText";
import { Invitations, Users } from "./Accounts";
import { ApiKeys } from "./ApiKeys";
import { Audit } from "./Audit";
import { Frame } from "./parts";

const SECTIONS = { users: Users, invitations: Invitations, keys: ApiKeys, audit: Audit } as const;

type Section = keyof typeof SECTIONS;

export function AdministerPage() {
  const { section } = useParams({ strict: false });
  const words = useText().operate;
  if (!isSection(section)) {
    return <Navigate to="/administer/$section" params={{ section: "users" }} replace />;
  }
  const Shown = SECTIONS[section];
  return (
    <Frame
      title={words.administer}
      role="administrator"
      sections={(Object.keys(SECTIONS) as Section[]).map((name) => ({
        to: `/administer/${name}`,
        label: words.administration[name],
      }))}
    >
      <Shown key={section} />
    </Frame>
  );
}

function isSection(name: string | undefined): name is Section {
  return name !== undefined && Object.hasOwn(SECTIONS, name);
}
