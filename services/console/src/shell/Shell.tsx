/** The frame of all pages: navigation, conversations, what waits, the user's menu. */
import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useNavigate } from "@tanstack/react-router";
import { useEffect, useState } from "react";

import { me, pendingApprovals } from "../api/queries";
import { session } from "../api/session";
import { Conversations } from "../chat/Conversations";
import { useText } from "../messages/useText";
import { useRoles } from "../operate/useRoles";
import { preferences, THEMES } from "../settings/preferences";
import { usePreferences } from "../settings/usePreferences";
import { Button, Icon } from "../ui/controls";
import { Dialog } from "../ui/Dialog";
import { Menu } from "../ui/Menu";
import { brand } from "./brand";
import { useSession } from "./useSession";
import { useShortcuts } from "./useShortcuts";
import styles from "./shell.module.css";

export function Shell() {
  const text = useText();
  const navigate = useNavigate();
  const [isOpen, setOpen] = useState(false);
  const [isHelp, setHelp] = useState(false);
  const close = () => setOpen(false);
  useShortcuts({
    n: () => void navigate({ to: "/" }),
    i: () => void navigate({ to: "/approvals" }),
    "/": () => {
      setOpen(true);
      document.getElementById("search-conversations")?.focus();
    },
    c: () => document.getElementById("question")?.focus(),
    "?": () => setHelp(true),
  });
  return (
    <div className={styles.shell}>
      <a className={styles.skip} href="#main">
        {text.skip}
      </a>
      <div className={styles.bar}>
        <Button kind="quiet" aria-label={text.menu} aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          <Icon name="menu" />
        </Button>
        <Brand onClick={close} />
        <ApprovalsLink onClick={close} isShort />
      </div>
      <button
        className={styles.veil}
        data-open={isOpen}
        aria-label={text.close}
        tabIndex={-1}
        onClick={close}
      />
      <header className={styles.side} data-open={isOpen}>
        <Brand onClick={close} />
        <nav className={styles.navigation} aria-label={text.navigation}>
          <Link to="/" className={styles.link} activeOptions={{ exact: true }} onClick={close}>
            <Icon name="plus" /> {text.newQuestion}
          </Link>
          <ApprovalsLink onClick={close} />
          <Link to="/documents" className={styles.link} onClick={close}>
            <Icon name="page" /> {text.knowledge.documents}
          </Link>
          <Link to="/files" className={styles.link} onClick={close}>
            <Icon name="folder" /> {text.knowledge.files}
          </Link>
          <Link to="/memory" className={styles.link} onClick={close}>
            <Icon name="bulb" /> {text.knowledge.memory}
          </Link>
          <Link to="/verified-queries" className={styles.link} onClick={close}>
            <Icon name="check" /> {text.verified.title}
          </Link>
        </nav>
        <Conversations onOpen={close} />
        <Foot onHelp={() => setHelp(true)} />
      </header>
      <main id="main" className={styles.main} tabIndex={-1}>
        <Outlet />
      </main>
      {isHelp && <Help onClose={() => setHelp(false)} />}
    </div>
  );
}

function Brand({ onClick }: { onClick: () => void }) {
  return (
    <Link to="/" className={styles.brand} onClick={onClick}>
      <img src={brand.logo} alt="" /> {brand.name}
    </Link>
  );
}

function ApprovalsLink({ onClick, isShort = false }: { onClick: () => void; isShort?: boolean }) {
  const text = useText();
  const { data } = useQuery(pendingApprovals);
  const count = data?.approvals.length ?? 0;
  return (
    <Link to="/approvals" className={styles.link} onClick={onClick}>
      <Icon name="shield" />
      {isShort ? <span className="visually-hidden">{text.approvals}</span> : text.approvals}
      {count > 0 && (
        <span className={styles.badge}>
          <span aria-hidden="true">{count}</span>
          <span className="visually-hidden">{text.approvalsWaiting(count)}</span>
        </span>
      )}
    </Link>
  );
}

function Foot({ onHelp }: { onHelp: () => void }) {
  const text = useText();
  const navigate = useNavigate();
  const { current } = useSession();
  const user = useQuery(me).data;
  const { theme } = usePreferences();
  const roles = useRoles() ?? [];
  const userId = user?.user_id;
  useEffect(() => {
    if (userId) preferences.belongTo(userId);
  }, [userId]);
  return (
    <div className={styles.foot}>
      <span className={styles.user}>
        <bdi>{user?.display_name || user?.username}</bdi>
      </span>
      <Menu
        label={text.menu}
        icon={<Icon name="more" />}
        entries={[
          ...THEMES.map((each) => ({
            label: `${text.theme}: ${text.themes[each]}`,
            isChosen: each === theme,
            onChoose: () => preferences.set({ theme: each }),
          })),
          { label: text.settings.title, onChoose: () => void navigate({ to: "/settings" }) },
          ...(roles.includes("operator")
            ? [{ label: text.operate.title, onChoose: () => void navigate({ to: "/operate" }) }]
            : []),
          ...(roles.includes("administrator")
            ? [{ label: text.operate.administer, onChoose: () => void navigate({ to: "/administer" }) }]
            : []),
          { label: text.shortcuts, onChoose: onHelp },
          { label: text.apiPage, onChoose: () => location.assign("/docs") },
          ...(current?.state === "SIGNED_IN"
            ? [{ label: text.signOut, onChoose: () => void session.logOut() }]
            : []),
        ]}
      />
    </div>
  );
}

function Help({ onClose }: { onClose: () => void }) {
  const text = useText();
  const keys = [
    ["n", text.keys.newQuestion],
    ["c", text.keys.write],
    ["i", text.keys.inbox],
    ["/", text.keys.search],
    ["?", text.keys.help],
  ];
  return (
    <Dialog title={text.shortcuts} onClose={onClose}>
      <dl className={styles.keys}>
        {keys.map(([key, what]) => (
          <div key={key} style={{ display: "contents" }}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <p>{text.inboxKeys}</p>
      <Button onClick={onClose}>{text.close}</Button>
    </Dialog>
  );
}
