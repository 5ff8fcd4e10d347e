/** Names and values; what has no value is left out. */
import type { ReactNode } from "react";

import { Literal } from "../text/Literal";

export type Fact = [name: string, value: string | undefined];

interface Props {
  facts: Fact[];
  className: string | undefined;
  /** Further entries, each with its dt and dd in a div. */
  children?: ReactNode;
}

export function FactList({ facts, className, children }: Props) {
  return (
    <dl className={className}>
      {facts.map(
        ([name, value]) =>
          value && (
            <div key={name}>
              <dt>{name}</dt>
              <dd>
                <Literal text={value} />
              </dd>
            </div>
          ),
      )}
      {children}
    </dl>
  );
}
