/** Addresses of the console. Pages beside the chat are loaded when they are opened. */
import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Link,
  Outlet,
} from "@tanstack/react-router";

import { ChatPage, NewChatPage } from "./chat/ChatPage";
import { narrowed } from "./documents/narrowing";
import { useText } from "./messages/useText";
import { Shell } from "./shell/Shell";
import { SignedIn } from "./shell/SignedIn";
import { Empty, Failure } from "./ui/controls";

const root = createRootRoute({
  component: () => (
    <SignedIn>
      <Outlet />
    </SignedIn>
  ),
  notFoundComponent: NotFound,
  errorComponent: ({ error, reset }) => <Failure error={error as Error} onRetry={reset} />,
});

const shell = createRoute({ getParentRoute: () => root, id: "shell", component: Shell });
const newChat = createRoute({ getParentRoute: () => shell, path: "/", component: NewChatPage });
const chat = createRoute({
  getParentRoute: () => shell,
  path: "/c/$conversationId",
  component: ChatPage,
});
const inboxPage = lazyRouteComponent(() => import("./approvals/InboxPage"), "InboxPage");
const inbox = createRoute({ getParentRoute: () => shell, path: "/approvals", component: inboxPage });
const oneApproval = createRoute({
  getParentRoute: () => shell,
  path: "/approvals/$approvalId",
  component: inboxPage,
});
const run = createRoute({
  getParentRoute: () => shell,
  path: "/runs/$runId",
  component: lazyRouteComponent(() => import("./runs/RunPage"), "RunPage"),
});
const chooseRun = createRoute({
  getParentRoute: () => shell,
  path: "/runs/$runId/compare",
  component: lazyRouteComponent(() => import("./runs/compare/ChooseRun"), "ChooseRunPage"),
});
const compareRuns = createRoute({
  getParentRoute: () => shell,
  path: "/runs/$runId/compare/$otherId",
  component: lazyRouteComponent(() => import("./runs/compare/ComparePage"), "ComparePage"),
});

const documents = createRoute({
  getParentRoute: () => shell,
  path: "/documents",
  component: lazyRouteComponent(() => import("./documents/DocumentsPage"), "DocumentsPage"),
  validateSearch: narrowed,
});
const document = createRoute({
  getParentRoute: () => shell,
  path: "/documents/$documentId",
  component: lazyRouteComponent(() => import("./documents/DocumentPage"), "DocumentPage"),
  validateSearch: ({ passage }: Record<string, unknown>): { passage?: string } =>
    typeof passage === "string" ? { passage } : {},
});
const passage = createRoute({
  getParentRoute: () => shell,
  path: "/passages/$chunkId",
  component: lazyRouteComponent(() => import("./documents/DocumentPage"), "PassagePage"),
});
const files = createRoute({
  getParentRoute: () => shell,
  path: "/files",
  component: lazyRouteComponent(() => import("./files/FilesPage"), "FilesPage"),
});
const memory = createRoute({
  getParentRoute: () => shell,
  path: "/memory",
  component: lazyRouteComponent(() => import("./memory/MemoryPage"), "MemoryPage"),
});
const verified = createRoute({
  getParentRoute: () => shell,
  path: "/verified-queries",
  component: lazyRouteComponent(() => import("./verified/VerifiedPage"), "VerifiedPage"),
});
const knowledge = [documents, document, passage, files, memory, verified] as const;

const settings = createRoute({
  getParentRoute: () => shell,
  path: "/settings",
  component: lazyRouteComponent(() => import("./settings/SettingsPage"), "SettingsPage"),
});

const operatePage = lazyRouteComponent(() => import("./operate/OperatePage"), "OperatePage");
const administerPage = lazyRouteComponent(() => import("./operate/AdministerPage"), "AdministerPage");
const operate = [
  createRoute({ getParentRoute: () => shell, path: "/operate", component: operatePage }),
  createRoute({ getParentRoute: () => shell, path: "/operate/$section", component: operatePage }),
  createRoute({ getParentRoute: () => shell, path: "/operate/runs/$runId", component: operatePage }),
  createRoute({ getParentRoute: () => shell, path: "/administer", component: administerPage }),
  createRoute({ getParentRoute: () => shell, path: "/administer/$section", component: administerPage }),
];

export const router = createRouter({
  routeTree: root.addChildren([
    shell.addChildren([
      newChat,
      chat,
      inbox,
      oneApproval,
      run,
      chooseRun,
      compareRuns,
      settings,
      ...knowledge,
      ...operate,
    ]),
  ]),
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}

function NotFound() {
  const text = useText();
  return (
    <Empty title={text.notFound}>
      <Link to="/">{text.toStart}</Link>
    </Empty>
  );
}
