// Pages for away.mjs without a browser.
import { register } from "node:module";
import "./dom.mjs";
import { until } from "./until.mjs";

register("./resolve.mjs", import.meta.url);
const { Tab } = await import("../resilient/tab.mjs");

/** How often something was sent that changes a chat. */
let sent = 0;
const { fetch, WebSocket } = globalThis;
globalThis.fetch = (url, init) => {
  if (init?.method === "POST") sent += 1;
  return fetch(url, init);
};
globalThis.WebSocket = class extends WebSocket {
  send(frame) {
    if (/"type":"cf_agent_(use_chat_request|tool_approval)"/.test(frame)) sent += 1;
    super.send(frame);
  }
};

export async function open({ server, name, after }, hook) {
  const tab = new Tab(hook, server.host, name);
  after(() => tab.close());
  return {
    seen: async () => tab.seen,
    say: async (words, body) => tab.say(words, body),
    approve: async (id, approved) => tab.approve(id, approved),
    /** Does it, until it has been sent. */
    async sends(act) {
      const before = sent;
      await act();
      await until("is sent", () => sent > before);
    },
  };
}
