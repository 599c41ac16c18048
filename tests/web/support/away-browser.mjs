// Pages for away.mjs in Chromium, which what stands before the server has also while that is away.
import { join } from "node:path";
import { Browser } from "./browser.mjs";
import { Front } from "./front.mjs";
import { folder } from "./packages.mjs";
import { until } from "./until.mjs";

export async function open({ server, name, after }, hook) {
  const front = await Front.of(server, join(folder, "resilient/page"));
  after(() => front.end());
  const browser = await Browser.start();
  after(() => browser.end());
  // Without what it has in place of the page of the example.
  await browser.context.unrouteAll();
  const page = await browser.context.newPage();
  let sent = 0;
  page.on("request", (request) => (sent += request.method() === "POST" ? 1 : 0));
  page.on("websocket", (socket) => socket.on("framesent", ({ payload }) => (sent += /"type":"cf_agent_(use_chat_request|tool_approval)"/.test(payload) ? 1 : 0)));
  await page.goto(`http://${front.host}/?hook=${hook}&chat=${name}`);
  return {
    front,
    seen: () => page.evaluate(() => window.tab.seen),
    say: (words, body) => page.evaluate(([words, body]) => window.tab.say(words, body), [words, body]),
    approve: (id, approved) => page.evaluate(([id, approved]) => window.tab.approve(id, approved), [id, approved]),
    reload: () => page.reload(),
    async sends(act) {
      const before = sent;
      await act();
      await until("is sent", () => sent > before);
    },
  };
}
