// The React page of the example, built, in Chromium: what a person sees.
//
//   (cd ../../examples/chat/web && npm ci && npm run build) && npm ci && node page.mjs [part of a case's name]
//   node page.mjs --pictures FOLDER     how it looks
//   node page.mjs --recording FILE      the README's recording, docs/guide/src/images/kill.png: `scripts/recording` makes it
import assert from "node:assert/strict";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Browser } from "./support/browser.mjs";
import { inTime, run } from "./support/cases.mjs";
import { Front } from "./support/front.mjs";
import { Line } from "./support/line.mjs";
import { conversation, take } from "./support/pictures.mjs";
import { record } from "./support/recording.mjs";
import { Server } from "./support/server.mjs";
import { dice, lines, text, until, words } from "./support/until.mjs";

/** A browser for each case, with as many tabs as there are hosts. What is asked is asked with `body`. */
async function open({ name, slow, after }, hosts, body = {}) {
  const browser = await Browser.start();
  after(() => browser.end());
  const query = new URLSearchParams({ chat: name, n: 40, delay: 50 * slow, ...body });
  const tabs = [];
  for (const host of hosts) tabs.push(await browser.open(`http://${host}/?${query}`));
  return { browser, tabs };
}

async function say(page, what) {
  await page.getByLabel("Message").fill(what);
  await page.getByRole("button", { name: "Send", exact: true }).click();
}

/** What the page shows, message by message. */
const shown = (page) => page.locator(".message").allTextContents();
const last = async (page) => (await shown(page)).at(-1) ?? "";
const see = (what, pages, so) => until(what, async () => (await Promise.all(pages.map(so))).every(Boolean));
const stop = (page) => page.getByRole("button", { name: "Stop", exact: true });
const idle = (page) => stop(page).isHidden();

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

/**
 * A browser that is switched offline. Chromium 156 refuses what is new then, requests (`Failed to fetch`) and WebSockets (1006). A WebSocket that
 * is open stays open: what is sent over it waits, in either direction, the end of the connection behind it, and arrives when the browser is online again.
 *
 * What is tested does not depend on the version of `ai`, so these run with one.
 */
const offline = {
  async "a browser that is offline in the middle of an answer has all of it when it is online again"(on) {
    const { browser, tabs } = await open(on, [on.server.host, on.server.host]);
    await say(tabs[0], "hello");
    await begun(tabs, "w5 ");
    await browser.context.setOffline(true);
    for (const page of tabs) assert.equal(await page.evaluate(() => navigator.onLine), false);
    for (const page of tabs) await page.getByText("Not connected: this browser is offline.").waitFor();
    await on.server.kill();
    for (const page of tabs) inTime((await last(page)) !== words(40));
    await on.server.again();
    await browser.context.setOffline(false);
    await settled(tabs, ["hello", words(40)]);
    assert.deepEqual(lines(await on.server.messages(on.name)), ["user: hello", `assistant: ${words(40)}`]);
    browser.quiet({ away: true });
  },

  async "a browser that was offline while the answer came to its end shows it when it is online again"(on) {
    const { browser, tabs } = await open(on, [on.server.host, on.server.host]);
    await say(tabs[0], "hello");
    await begun(tabs, "w5 ");
    await browser.context.setOffline(true);
    await until("stored", async () => (await on.server.messages(on.name)).length === 2);
    await browser.context.setOffline(false);
    await settled(tabs, ["hello", words(40)]);
    browser.quiet({ away: true });
  },
};

const cases = {
  ...(process.env.HOOKS ? {} : offline),
  async "what is said is answered word by word, and a second tab sees the same"(on) {
    const { browser, tabs } = await open(on, [on.server.host, on.server.host]);
    await say(tabs[0], "hello");
    await begun(tabs, "w1 ");
    await settled(tabs, ["hello", words(40)]);
    browser.quiet();
  },

  async "a reload in the middle of an answer goes on without a lost or doubled character"(on) {
    const { browser, tabs } = await open(on, [on.server.host]);
    await say(tabs[0], "hello");
    await begun(tabs, "w5 ");
    await tabs[0].reload();
    inTime((await on.server.messages(on.name)).length === 1);
    await settled(tabs, ["hello", words(40)]);
    browser.quiet();
  },

  async "the same message grows to its end when the server is killed in the middle"(on) {
    const { browser, tabs } = await open(on, [on.server.host, on.server.host]);
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

  async "a page that is loaded while its server is away, or a proxy answers 503 for it, comes back by itself"(on) {
    const front = await Front.of(on.server, join(import.meta.dirname, "../../examples/chat/web/dist"));
    on.after(() => front.end());
    const { browser, tabs } = await open(on, [front.host]);
    for (const says503 of [false, true]) {
      front.says503 = says503;
      const before = await shown(tabs[0]);
      await say(tabs[0], "hello");
      await begun(tabs, "w5 ");
      await on.server.kill();
      const refused = front.refused;
      await tabs[0].reload();
      await tabs[0].getByText("Loading …").waitFor();
      await until("several attempts", () => front.refused > refused + 3);
      await on.server.again();
      await settled(tabs, [...before, "hello", words(40)]);
    }
    assert.deepEqual(browser.complaints.filter((complaint) => !/Failed to load resource|WebSocket connection/.test(complaint)), []);
  },

  async "an error that came while the page was closed is seen when it is opened again"(on) {
    const { browser, tabs } = await open(on, [on.server.host], { n: 5, mode: "error" });
    await say(tabs[0], "fail");
    await until("has begun", async () => (await last(tabs[0])).includes("w0"));
    await tabs[0].close();
    await until("stored", async () => (await on.server.messages(on.name)).at(-1).metadata?.forever?.outcome === "error");
    const page = await browser.open(`http://${on.server.host}/?chat=${on.name}`);
    // In its message, and nowhere else.
    await settled([page], ["fail", `${words(5)}provider said no`]);
    assert.equal(await page.getByText("provider said no").count(), 1);
    browser.quiet();
  },

  async "an error that came while the line was cut is seen when it is mended"(on) {
    const line = await Line.to(on.server.host);
    on.after(() => line.end());
    const { browser, tabs } = await open(on, [line.host], { n: 5, mode: "error" });
    await say(tabs[0], "fail");
    await until("has begun", async () => (await last(tabs[0])).includes("w0"));
    line.cut();
    inTime((await on.server.messages(on.name)).length === 1);
    await tabs[0].getByText("Not connected").waitFor();
    await until("stored", async () => (await on.server.messages(on.name)).at(-1).metadata?.forever?.outcome === "error");
    line.mend();
    await settled(tabs, ["fail", `${words(5)}provider said no`]);
    assert.equal(await tabs[0].getByText("provider said no").count(), 1);
    browser.quiet({ away: true });
  },

  async "an answer that is stopped stays as it is in every tab, and a chat that is cleared is empty in every tab"(on) {
    const { browser, tabs } = await open(on, [on.server.host, on.server.host]);
    await say(tabs[0], "hello");
    await begun(tabs, "w3 ");
    assert.equal(await tabs[0].getByRole("button", { name: "Send", exact: true }).count(), 0);
    await stop(tabs[0]).click();
    await see("stopped", tabs, idle);
    await until("stored", async () => (await on.server.messages(on.name)).length === 2);
    const said = text((await on.server.messages(on.name)).at(-1));
    inTime(said !== words(40));
    await until("the same", async () => (await last(tabs[1])).replace(/Stopped\.$/, "") === said);
    // Who stops it lets go at once, and does not see what came before the server heard of it.
    assert(`${said}Stopped.`.startsWith(await last(tabs[0])));
    for (const page of tabs) await page.reload();
    await settled(tabs, ["hello", `${said}Stopped.`]);
    await tabs[0].getByRole("button", { name: "Clear" }).click();
    await settled(tabs, []);
    browser.quiet();
  },

  async "Stop in a tab that only watches stops the answer in every tab"(on) {
    const { browser, tabs } = await open(on, [on.server.host, on.server.host]);
    await say(tabs[0], "hello");
    await begun(tabs, "w3 ");
    await stop(tabs[1]).click();
    await see("stopped", tabs, idle);
    await until("stored", async () => (await on.server.messages(on.name)).length === 2);
    const said = text((await on.server.messages(on.name)).at(-1));
    inTime(said !== words(40));
    for (const page of tabs) await page.reload();
    await settled(tabs, ["hello", `${said}Stopped.`]);
    browser.quiet();
  },

  async "a tool that the page answers, and the answer goes on in the same message"(on) {
    const { browser, tabs } = await open(on, [on.server.host], { n: 2, mode: "tool" });
    await say(tabs[0], "where am I?");
    // The words before the call are the same as those behind it.
    await tabs[0].locator(".tool", { hasText: /Your browser answered.*language: \w+/ }).waitFor();
    await until("goes on", async () => (await last(tabs[0])).endsWith(words(2)) && (await idle(tabs[0])));
    assert.equal((await shown(tabs[0])).length, 2);
    browser.quiet();
  },

  async "a call that is approved is carried out, and one that is refused is not"(on) {
    for (const [button, outcome] of [["Approve", "✓ Used pay (amt: 5)"], ["Decline", "✕ Not used: pay (amt: 5)"]]) {
      const { browser, tabs } = await open({ ...on, name: `${on.name}-${button}` }, [on.server.host], { n: 2, mode: "approval" });
      await say(tabs[0], "pay");
      await tabs[0].getByText("Use pay (amt: 5)?").waitFor();
      await tabs[0].getByRole("button", { name: button, exact: true }).click();
      await tabs[0].locator(".tool", { hasText: outcome }).waitFor();
      await until("goes on", async () => (await last(tabs[0])).endsWith(words(2)) && (await idle(tabs[0])));
      assert.equal((await shown(tabs[0])).length, 2);
      browser.quiet();
    }
  },

  async "twenty random kills and lost connections, and every tab has the same in the end"(on) {
    const next = dice();
    const cuts = [await Line.to(on.server.host), await Line.to(on.server.host)];
    on.after(() => cuts.forEach((line) => line.end()));
    const { browser, tabs } = await open(on, [on.server.host, ...cuts.map((line) => line.host)]);
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
    const { browser, tabs } = await open(on, [on.server.host, on.server.host], { n: 2, mode: "approval" });
    await say(tabs[0], "pay");
    await tabs[1].getByRole("button", { name: "Approve" }).click();
    for (const page of tabs) await page.locator(".tool", { hasText: "✓ Used pay" }).waitFor();
    await see("goes on", tabs, async (page) => (await last(page)).endsWith(words(2)) && (await idle(page)));
    for (const page of tabs) assert.equal((await shown(page)).length, 2);
    browser.quiet();
  },

  async "a page that opens says how to kill its server, and an answer that was killed says so where it was"(on) {
    const server = await Server.start("showcase");
    on.after(() => server.end());
    const { browser, tabs: [page] } = await open(on, [server.host]);
    await page.getByText(`kill -9 ${server.child.pid}`).waitFor();
    await page.getByRole("button", { name: "What happens if I kill" }).click();
    await page.getByText("Every word that").waitFor();
    await server.kill();
    await page.getByText(/Not connected. Trying again in \d\ss/).waitFor();
    const before = (await last(page)).trim();
    inTime(!before.endsWith("top of the page."));
    await server.again();
    const mark = page.locator(".mark");
    await until("the whole answer", async () => (await last(page)).endsWith("top of the page.") && (await idle(page)));
    assert.match(await mark.textContent(), /^server killed, resumed (at once|\d+ s later)$/);
    assert((await last(page)).replace(/server killed, resumed (at once|\d+ s later)/, "").startsWith(before));
    assert.equal(await page.locator(".message ol li").count(), 3);
    await page.getByText(`kill -9 ${server.child.pid}`).waitFor();
    // It is there after a reload as well.
    await page.reload();
    await mark.waitFor();
    browser.quiet({ away: true });
  },

  async "a payment is approved in words, and a lost connection is tried again at once"(on) {
    const server = await Server.start("showcase");
    on.after(() => server.end());
    const { browser, tabs: [page] } = await open(on, [server.host], { delay: 5 });
    await page.getByRole("button", { name: "Please pay Ada 12 euros." }).click();
    await page.getByText("Pay 12.00 € to Ada?").waitFor();
    await server.kill();
    await page.getByText("Trying again in 4 s").waitFor();
    await server.again();
    const retry = page.getByRole("button", { name: "Retry now" });
    inTime(await retry.isVisible());
    await retry.click();
    await page.getByText("Not connected").waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Approve" }).click();
    await page.getByText("✓ Paid 12.00 € to Ada").waitFor();
    await page.getByText("Done, and only once").waitFor();
    browser.quiet({ away: true });
  },

  async "what a model writes is Markdown, and never HTML of the page"(on) {
    const browser = await Browser.start();
    on.after(() => browser.end());
    const hostile = [
      "<img src=x onerror=\"window.broken = 1\"> <script>window.broken = 2</script>",
      "<iframe srcdoc=\"<script>parent.broken = 3</script>\"></iframe>",
      "[a](javascript:window.broken=4) [b](data:text/html,x) [c](JaVaScRiPt:x) <javascript:window.broken=5> [d](/agents) [e](https://example.com/)",
      "![f](https://example.com/pixel.png)",
      "**bold** `code` \ue000\ue0ff",
      "```\"><img src=x onerror=window.broken=6>\n<b>not bold</b>\n```",
    ].join("\n\n");
    const messages = [
      { id: "u", role: "user", parts: [{ type: "text", text: "<b>hi</b> **there**" }] },
      { id: "a", role: "assistant", parts: [{ type: "text", text: hostile }, { type: "tool-x", toolCallId: "c", state: "output-available", input: { a: "<img src=x>" }, output: "<b>" }] },
    ];
    await browser.stored(messages);
    const page = await browser.open(`http://${on.server.host}/?chat=${on.name}`);
    await page.getByText("bold", { exact: true }).waitFor();
    assert.deepEqual((await shown(page))[0], "<b>hi</b> **there**");
    assert.equal(await page.locator(".message :is(img, script, iframe, b)").count(), 0);
    assert.deepEqual(await page.locator(".message a").evaluateAll((links) => links.map((link) => link.getAttribute("href"))), ["https://example.com/"]);
    assert.equal(await page.locator(".message strong").textContent(), "bold");
    assert.equal(await page.evaluate(() => window.broken), undefined);
    browser.quiet();
  },

  async "a long conversation opens at its end, and text is written in its direction"(on) {
    const browser = await Browser.start({ viewport: { width: 390, height: 780 } });
    on.after(() => browser.end());
    const arabic = { id: "arabic", role: "assistant", parts: [{ type: "text", text: "ما الذي يحدث إذا أوقفت الخادم؟ kill -9\n\n- واحد" }] };
    const wide = { id: "wide", role: "user", parts: [{ type: "text", text: "x".repeat(3000) }] };
    await browser.stored([...conversation(1000), wide, arabic]);
    const page = await browser.open(`http://${on.server.host}/?chat=${on.name}`);
    const end = page.locator(".message").last();
    await end.waitFor();
    const seen = () => end.evaluate((node) => node.getBoundingClientRect().bottom <= document.querySelector("footer").getBoundingClientRect().top + 1);
    await until("its end is seen", seen);
    assert.equal(await end.locator("p").first().evaluate((node) => getComputedStyle(node).direction), "rtl");
    assert.equal(await end.locator("li").evaluate((node) => getComputedStyle(node).direction), "rtl");
    assert.equal(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), true, "nothing is wider than the window");
    // A person who reads further up is left there.
    await page.evaluate(() => scrollTo(0, 500));
    await page.getByLabel("Message").fill("hello");
    assert.equal(await page.evaluate(() => scrollY), 500);
    browser.quiet();
  },
};

if (process.argv[2] === "--pictures") await take(process.argv[3]);
else if (process.argv[2] === "--recording") await record(process.argv[3]);
else await run(cases);
