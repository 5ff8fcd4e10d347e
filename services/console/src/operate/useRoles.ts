/** The roles of the user. They only decide what is offered: the services decide what is done. */
import { useQuery } from "@tanstack/react-query";

import { agents, me } from "../api/queries";
import { useSession } from "../shell/useSession";

export const ROLES = ["user", "approver", "operator", "administrator"] as const;
export type Role = (typeof ROLES)[number];

/** The roles; undefined while they are not known. Where authentication is off, every user may operate. */
export function useRoles(): readonly string[] | undefined {
  const { current } = useSession();
  const isOpen = current?.state === "NOT_NEEDED";
  const account = useQuery({ ...me, enabled: !isOpen });
  const other = useQuery({ ...agents, enabled: !isOpen && account.isError });
  if (isOpen) return ["operator"];
  if (account.data) return account.data.roles;
  return account.isError ? (other.data?.roles ?? (other.isError ? [] : undefined)) : undefined;
}
