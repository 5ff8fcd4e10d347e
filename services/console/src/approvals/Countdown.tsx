/** Time until an approval counts as denied, by the server's clock. */
import { useEffect, useState } from "react";

import { serverNowMs } from "../api/clock";
import { useText } from "../messages/useText";
import { shownCountdown } from "../text/format";

export function Countdown({ expireTime }: { expireTime: string }) {
  const text = useText();
  const [nowMs, setNow] = useState(serverNowMs);
  useEffect(() => {
    const timer = setInterval(() => setNow(serverNowMs()), 1000);
    return () => clearInterval(timer);
  }, []);
  // Read by a screen reader when the card is reached, not every second.
  return <time role="timer">{text.expiresIn(shownCountdown(Date.parse(expireTime) - nowMs))}</time>;
}
