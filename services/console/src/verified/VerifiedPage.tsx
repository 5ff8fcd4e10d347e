/** Verified queries of the user and of the user's groups: question, query, who, for whom, when. */
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";

import { useText } from "../messages/useText";
import { Listing } from "../runs/step/Listing";
import { shownTime } from "../text/format";
import { Literal } from "../text/Literal";
import { Button, buttonClass, Empty, Failure } from "../ui/controls";
import { verifiedQueries, type VerifiedQuery } from "./queries";
import { TakeBack } from "./TakeBack";
import styles from "./verified.module.css";

export function VerifiedPage() {
  const all = useText();
  const text = all.verified;
  const found = useInfiniteQuery(verifiedQueries);
  const list = found.data?.pages.flatMap((page) => page.verified_queries) ?? [];
  return (
    <div className={styles.page}>
      <div className={styles.column}>
        <header className={styles.head}>
          <h1>{text.title}</h1>
          <p>{text.hint}</p>
        </header>
        {found.error && <Failure error={found.error} onRetry={() => void found.refetch()} />}
        {found.isPending && <p role="status">{all.loading}</p>}
        {found.isSuccess && list.length === 0 && (
          <Empty title={text.none}>
            <p>{text.noneHint}</p>
          </Empty>
        )}
        <ul className={styles.list} aria-label={text.title}>
          {list.map((each) => (
            <li key={each.query_id}>
              <Entry verified={each} />
            </li>
          ))}
        </ul>
        {found.hasNextPage && (
          <Button disabled={found.isFetchingNextPage} onClick={() => void found.fetchNextPage()}>
            {all.more}
          </Button>
        )}
      </div>
    </div>
  );
}

function Entry({ verified }: { verified: VerifiedQuery }) {
  const all = useText();
  const text = all.verified;
  const { query } = verified;
  const facts = [
    verified.own ? text.you : text.member,
    verified.group ? text.forGroup(verified.group) : text.forMe,
    shownTime(verified.create_time),
    query?.database && text.database(query.database),
    verified.corrected && text.corrected,
  ];
  return (
    <article className={styles.entry}>
      <h2>
        <Literal text={verified.question} />
      </h2>
      <p className={styles.facts}>
        <Literal text={facts.filter(Boolean).join(" · ")} />
      </p>
      <Listing title={all.sql} content={query?.sql ?? ""} />
      <div className={styles.buttons}>
        {verified.own && (
          <Link to="/runs/$runId" params={{ runId: verified.run_id }} className={buttonClass("quiet")}>
            {all.openRun}
          </Link>
        )}
        <TakeBack verified={verified} />
      </div>
    </article>
  );
}
