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
  routeTree: root.addChildren([shell.addChildren([newChat, chat, inbox, oneApproval, run, settings, ...operate])]),
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
