// The React page of the example, built, in Chromium: what a person sees.
//
//   (cd ../../examples/chat/web && npm ci && npm run build) && npm ci && node page.mjs [part of a case's name]
//   node page.mjs --pictures FOLDER     how it looks; FOLDER/chat.png is the README's picture, docs/chat.png
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { Browser } from "./support/browser.mjs";
import { inTime, run } from "./support/cases.mjs";
import { Line } from "./support/line.mjs";
import { take } from "./support/pictures.mjs";
import { dice, lines, text, until, words } from "./support/until.mjs";

/** A browser for each case, with as many tabs as there are hosts. */
async function open({ name, slow, after }, ...hosts) {
  const browser = await Browser.start();
  after(() => browser.end());
  const tabs = [];
  for (const host of hosts) tabs.push(await browser.open(`http://${host}/?chat=${name}&delay=${50 * slow}`));
  return { browser, tabs };
}

/** Asks for `n` words; the page's own buttons ask for 40 of them, or fewer. */
async function say(page, what, button = "Send") {
  await page.getByLabel("Message").fill(what);
  await page.getByRole("button", { name: button, exact: true }).click();
}

/** What the page shows, message by message. */
const shown = (page) => page.locator(".message").allTextContents();
const last = async (page) => (await shown(page)).at(-1) ?? "";
const see = (what, pages, so) => until(what, async () => (await Promise.all(pages.map(so))).every(Boolean));
const idle = (page) => page.getByRole("button", { name: "Stop" }).isDisabled();

/** Until every page shows these messages, and nothing is under way. */
async function settled(pages, messages) {
  for (const page of pages) {
    let seen;
    try {
      await until("the whole answer", async () => (seen = await shown(page)).join("|") === messages.join("|") && (await idle(page)));
    } catch (error) {
      assert.deepEqual(seen, messages);
      throw error;
    }
  }
}

/** Until a message on a page has begun, and is not whole. */
async function begun(pages, word, whole = words(40)) {
  await see(word, pages, async (page) => (await last(page)).includes(word));
  for (const page of pages) inTime((await last(page)) !== whole);
}

const cases = {
  async "what is said is answered word by word, and a second tab sees the same"(on) {
    const { browser, tabs } = await open(on, on.server.host, on.server.host);
    await say(tabs[0], "hello");
    await begun(tabs, "w1 ");
    await settled(tabs, ["hello", words(40)]);
    browser.quiet();
  },

  async "a reload in the middle of an answer goes on without a lost or doubled character"(on) {
    const { browser, tabs } = await open(on, on.server.host);
    await say(tabs[0], "hello");
    await begun(tabs, "w5 ");
    await tabs[0].reload();
    inTime((await on.server.messages(on.name)).length === 1);
    await settled(tabs, ["hello", words(40)]);
    browser.quiet();
  },

  async "the same message grows to its end when the server is killed in the middle"(on) {
    const { browser, tabs } = await open(on, on.server.host, on.server.host);
    await say(tabs[0], "hello");
    await begun(tabs, "w5 ");
    // The very node: what is shown anew would not be marked.
    for (const page of tabs) await page.locator(".assistant").evaluate((node) => (node.dataset.seen = "before"));
    await on.server.kill();
    for (const page of tabs) await page.getByText("Not connected").waitFor();
    for (const page of tabs) inTime((await last(page)) !== words(40));
    await on.server.again();
    await settled(tabs, ["hello", words(40)]);
    for (const page of tabs) assert.equal(await page.locator(".assistant").getAttribute("data-seen"), "before");
    browser.quiet({ away: true });
  },

  async "an error that came while the page was closed is seen when it is opened again"(on) {
    const { browser, tabs } = await open(on, on.server.host);
    await say(tabs[0], "fail", "Fail");
    await until("has begun", async () => (await last(tabs[0])).includes("w0"));
    await tabs[0].close();
    await until("stored", async () => (await on.server.messages(on.name)).at(-1).metadata?.forever?.outcome === "error");
    const page = await browser.open(`http://${on.server.host}/?chat=${on.name}`);
    await page.getByRole("status").getByText("provider said no").waitFor();
    await settled([page], ["fail", `${words(5)}provider said no`]);
    browser.quiet();
  },

  async "an error that came while the line was cut is seen when it is mended"(on) {
    const line = await Line.to(on.server.host);
    on.after(() => line.end());
    const { browser, tabs } = await open(on, line.host);
    await say(tabs[0], "fail", "Fail");
    await until("has begun", async () => (await last(tabs[0])).includes("w0"));
    line.cut();
    inTime((await on.server.messages(on.name)).length === 1);
    await tabs[0].getByText("Not connected").waitFor();
    await until("stored", async () => (await on.server.messages(on.name)).at(-1).metadata?.forever?.outcome === "error");
    line.mend();
    await tabs[0].getByRole("status").getByText("provider said no").waitFor();
    await settled(tabs, ["fail", `${words(5)}provider said no`]);
    browser.quiet({ away: true });
  },

  async "an answer that is stopped stays as it is in every tab, and a chat that is cleared is empty in every tab"(on) {
    const { browser, tabs } = await open(on, on.server.host, on.server.host);
    await say(tabs[0], "hello");
    await begun(tabs, "w3 ");
    await tabs[0].getByRole("button", { name: "Stop" }).click();
    await see("stopped", tabs, idle);
    await until("stored", async () => (await on.server.messages(on.name)).length === 2);
    const said = text((await on.server.messages(on.name)).at(-1));
    inTime(said !== words(40));
    await settled([tabs[1]], ["hello", said]);
    // Who stops it lets go at once, and does not see what came before the server heard of it.
    assert(said.startsWith(await last(tabs[0])));
    await tabs[0].reload();
    await settled(tabs, ["hello", said]);
    await tabs[0].getByRole("button", { name: "Clear" }).click();
    await settled(tabs, []);
    browser.quiet();
  },

  async "a tool that the page answers, and the answer goes on in the same message"(on) {
    const { browser, tabs } = await open(on, on.server.host);
    await say(tabs[0], "where am I?", "Ask the page");
    await until("goes on", async () => (await last(tabs[0])).endsWith(`}${words(2)}`) && (await idle(tabs[0])));
    assert.match(await last(tabs[0]), /getLocation.*"language":/);
    assert.equal((await shown(tabs[0])).length, 2);
    browser.quiet();
  },

  async "a call that is approved is carried out, and one that is refused is not"(on) {
    for (const [button, outcome] of [["Yes", '{"paid":true}'], ["No", "refused"]]) {
      const { browser, tabs } = await open({ ...on, name: `${on.name}-${button}` }, on.server.host);
      await say(tabs[0], "pay", "Ask me");
      await tabs[0].getByRole("button", { name: button, exact: true }).click();
      await tabs[0].locator(".tool", { hasText: outcome }).waitFor();
      await until("goes on", async () => (await last(tabs[0])).endsWith(`${outcome}${words(2)}`) && (await idle(tabs[0])));
      assert.equal((await shown(tabs[0])).length, 2);
      browser.quiet();
    }
  },

  async "twenty random kills and lost connections, and every tab has the same in the end"(on) {
    const next = dice();
    const cuts = [await Line.to(on.server.host), await Line.to(on.server.host)];
    on.after(() => cuts.forEach((line) => line.end()));
    const { browser, tabs } = await open(on, on.server.host, ...cuts.map((line) => line.host));
    for (let round = 0; round < 20; round += 1) {
      if (round % 7 === 0) {
        await see("idle", tabs, async (page) => (await idle(page)) && !(await page.getByText("Not connected").isVisible()));
        await say(tabs[next(3)], `round ${round}`);
        await see("the question", tabs, async (page) => (await shown(page)).includes(`round ${round}`));
      }
      await sleep(next(400));
      const line = cuts[next(2)];
      if (next(2) === 0) await on.server.restart();
      else {
        line.cut();
        await sleep(next(200));
        line.mend();
      }
    }
    await until("all is stored", async () => (await on.server.messages(on.name)).length === 6);
    const stored = await on.server.messages(on.name);
    assert.deepEqual(lines(stored), [0, 7, 14].flatMap((round) => [`user: round ${round}`, `assistant: ${words(40)}`]));
    await settled(tabs, stored.map((message) => lines([message])[0].replace(/^\w+: /, "")));
    browser.quiet({ away: true });
  },

  async "an approval given in another tab than the one that asked is one message in both"(on) {
    const { browser, tabs } = await open(on, on.server.host, on.server.host);
    await say(tabs[0], "pay", "Ask me");
    await tabs[1].getByRole("button", { name: "Yes" }).click();
    for (const page of tabs) await page.locator(".tool", { hasText: `{"paid":true}` }).waitFor();
    await see("goes on", tabs, async (page) => (await last(page)).endsWith(`{"paid":true}${words(2)}`) && (await idle(page)));
    for (const page of tabs) assert.equal((await shown(page)).length, 2);
    browser.quiet();
  },
};

if (process.argv[2] === "--pictures") await take(process.argv[3]);
else await run(cases);
