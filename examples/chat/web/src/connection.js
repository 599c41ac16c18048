// The connection as a person sees it: whether it is there, and when it is tried again.
import { useEffect, useState } from "react";

/** When a lost connection is tried again: the first time at once, then in ever longer pauses, in ms. */
export const retries = { minReconnectionDelay: 500, maxReconnectionDelay: 4000, reconnectionDelayGrowFactor: 1.5 };

const pause = (count) => (count === 0 ? 0 : Math.min(retries.minReconnectionDelay * retries.reconnectionDelayGrowFactor ** (count - 1), retries.maxReconnectionDelay));

/**
 * Whether the agent is connected, whether the browser is online, and the seconds until the next try; 0 while it is tried.
 *
 * A connection of a browser that goes offline is not closed: nothing arrives over it, not even that its server is gone. So it counts as lost at
 * once, and is made anew when the browser is online again.
 */
export function useConnection(agent) {
  const online = useOnline(agent);
  const [lost, setLost] = useState(undefined);
  const [now, setNow] = useState(Date.now());
  const [connected, setConnected] = useState(agent.readyState === WebSocket.OPEN);
  useEffect(() => {
    const opened = () => (setConnected(true), setLost(undefined));
    const closed = () => {
      setConnected(false);
      // When the socket has counted its next try.
      setTimeout(() => setLost(Date.now() + pause(agent.retryCount)));
    };
    if (agent.readyState === WebSocket.OPEN) opened();
    agent.addEventListener("open", opened);
    agent.addEventListener("close", closed);
    return () => {
      agent.removeEventListener("open", opened);
      agent.removeEventListener("close", closed);
    };
  }, [agent]);
  useEffect(() => {
    if (lost === undefined) return undefined;
    setNow(Date.now());
    const ticks = setInterval(() => setNow(Date.now()), 250);
    return () => clearInterval(ticks);
  }, [lost]);
  return { connected: connected && online, online, wait: lost === undefined ? undefined : Math.max(0, Math.ceil((lost - now) / 1000)) };
}

/** Whether the browser is online. Reconnects the agent when it is so again. */
function useOnline(agent) {
  const [online, setOnline] = useState(navigator.onLine);
  useEffect(() => {
    const gone = () => setOnline(false);
    const back = () => (setOnline(true), agent.reconnect());
    window.addEventListener("offline", gone);
    window.addEventListener("online", back);
    return () => {
      window.removeEventListener("offline", gone);
      window.removeEventListener("online", back);
    };
  }, [agent]);
  return online;
}
