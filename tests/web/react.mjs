// The published React hooks, unchanged, against the example server: what a person would see in each tab, without a browser.
//
//   npm ci && node react.mjs [part of a case's name]
//   node older.mjs     the same with older packages
//   node seven.mjs react.mjs     the same with version 7 of the `ai` package
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { inTime, run } from "./support/cases.mjs";
import { Line } from "./support/line.mjs";
import { Tab } from "./support/tab.mjs";
import { dice, lines, text, until as wait, words } from "./support/until.mjs";

const older = process.env.HOOKS?.endsWith("older") ?? false;

/**
 * What older packages do not do: they pass over an error that is played back, do not say that an approval is to be gone on with, break off what is
 * played back when it has more than fifty chunks, and write an answer twice that begins anew on the next connection.
 */
const beyondOlder = ["the same message grows", "an error that came while", "an approval", "a call that is approved", "a question that was", "what follows an approval", "twenty random kills"];

/** Waits, and says what the tabs see if it does not come. */
const until = (what, tabs, so) => wait(what, so, () => tabs.map((tab) => [tab.chat?.status, tab.chat?.error?.message, tab.lines]));

/** Tabs of a chat, with what they need to be closed. */
async function open({ name, after }, ...hosts) {
  const tabs = hosts.map((host) => new Tab(host, name));
  after(() => tabs.forEach((tab) => tab.close()));
  await until("ready", tabs, () => tabs.every((tab) => tab.ready));
  return tabs;
}

/** A call of a tool that pays, for which a person is asked. */
async function askedToPay(tab, all, body = { n: 1 }) {
  tab.say("pay", { ...body, mode: "approval" });
  await until("asks", all, () => all.every((one) => one.state("pay") === "approval-requested" && one.ready));
}

const cases = {
  async "an answer streams, and a second tab sees the same"(on) {
    const { server, slow } = on;
    const [one, two] = await open(on, server.host, server.host);
    one.say("hi", { n: 10, delay: 30 * slow });
    await until("streams", [one, two], () => [one, two].every((tab) => tab.last.startsWith("assistant: w0")));
    inTime([one, two].every((tab) => tab.last !== `assistant: ${words(10)}`));
    await until("is over", [one, two], () => [one, two].every((tab) => tab.last === `assistant: ${words(10)}` && tab.ready));
    assert.deepEqual(two.lines, one.lines);
  },

  async "a reload in the middle of a stream goes on without a lost or doubled character"(on) {
    const { server, slow } = on;
    const [one] = await open(on, server.host);
    one.say("hi", { n: 12, delay: 50 * slow });
    await until("has begun", [one], () => one.last.includes("w3"));
    one.close();
    inTime((await server.messages(on.name)).length === 1);
    const two = new Tab(server.host, on.name);
    on.after(() => two.close());
    await until("whole", [two], () => two.last === `assistant: ${words(12)}` && two.ready);
    assert.equal(two.lines.length, 2);
  },

  async "the same message grows to its end when the server is killed in the middle"(on) {
    const { server, slow } = on;
    const tabs = await open(on, server.host, server.host);
    tabs[0].say("hi", { n: 20, delay: 50 * slow });
    await until("has begun", tabs, () => tabs.every((tab) => tab.last.includes("w4")));
    const ids = tabs.map((tab) => tab.chat.messages.at(-1).id);
    await server.kill();
    inTime(tabs.every((tab) => tab.last !== `assistant: ${words(20)}`));
    await server.again();
    await until("whole", tabs, () => tabs.every((tab) => tab.last === `assistant: ${words(20)}`));
    for (const tab of tabs) assert.equal(tab.chat.messages.length, 2);
    assert.deepEqual(tabs.map((tab) => tab.chat.messages.at(-1).id), ids);
  },

  async "an error that came while nobody was there is seen by who comes"(on) {
    const { server } = on;
    const [one] = await open(on, server.host);
    one.say("hi", { n: 4, delay: 50, mode: "error" });
    await until("has begun", [one], () => one.last.includes("w0"));
    one.close();
    await until("stored", [], async () => (await server.messages(on.name)).at(-1).metadata?.forever?.outcome === "error");
    const two = new Tab(server.host, on.name);
    on.after(() => two.close());
    await until("the error", [two], () => two.chat?.error?.message === "provider said no");
    assert.deepEqual(two.lines, ["user: hi", `assistant: ${words(4)}`]);
  },

  async "an error that came while the line was cut is seen when it is mended"(on) {
    const { server, slow } = on;
    const line = await Line.to(server.host);
    on.after(() => line.end());
    const [one] = await open(on, line.host);
    one.say("hi", { n: 8, delay: 50 * slow, mode: "error" });
    await until("has begun", [one], () => one.last.includes("w2"));
    line.cut();
    inTime((await server.messages(on.name)).length === 1);
    await until("stored", [], async () => (await server.messages(on.name)).at(-1).metadata?.forever?.outcome === "error");
    assert.notEqual(one.chat.error?.message, "provider said no");
    line.mend();
    await until("the error", [one], () => one.chat.error?.message === "provider said no");
    await until("the words", [one], () => one.last === `assistant: ${words(8)}`);
  },

  async "cancelled, cleared"(on) {
    const { server, slow } = on;
    const [one, two] = await open(on, server.host, server.host);
    one.say("hi", { n: 100, delay: 50 * slow });
    await until("has begun", [one], () => one.last.includes("w3"));
    const told = new Promise((heard) => {
      one.agent.addEventListener("message", ({ data }) => {
        const { type, messages } = JSON.parse(data);
        if (type === "cf_agent_chat_messages" && messages.at(-1)?.role === "assistant") heard(true);
      });
    });
    await one.chat.stop();
    // Who stops it lets go at once, and does not see what came before the server heard of it.
    await until("stopped", [one, two], () => one.ready && two.ready && two.last.startsWith(one.last) && one.last.includes("w3"));
    inTime(two.last !== `assistant: ${words(100)}`);
    await until("stored", [two], async () => lines(await server.messages(on.name)).at(-1) === two.last);
    // A page that clears in the moment in which it is sent the conversation shows that again, as it is not told of what it has
    // done itself.
    await until("the conversation", [one], () => Promise.race([told, sleep(0)]));
    one.chat.clearHistory();
    await until("empty", [one, two], () => two.chat.messages.length === 0 && one.chat.messages.length === 0);
  },

  async "a tool that the page answers, and the answer goes on"(on) {
    const [one] = await open(on, on.server.host);
    one.say("where am I?", { n: 1, mode: "tool" });
    await until("the answer goes on", [one], () => one.last === "assistant: w0 w0 " && one.ready);
    assert.equal(one.state("getLocation"), "output-available");
  },

  async "a call that is approved is carried out, and one that is refused is not"(on) {
    const [one] = await open(on, on.server.host);
    await askedToPay(one, [one]);
    one.chat.addToolApprovalResponse({ id: "ap1", approved: true });
    await until("paid", [one], () => one.state("pay") === "output-available" && one.ready);
    assert.equal(one.chat.messages.length, 2);
    one.chat.clearHistory();
    await until("empty", [one], () => one.chat.messages.length === 0);
    await askedToPay(one, [one]);
    one.chat.addToolApprovalResponse({ id: "ap1", approved: false });
    await until("refused", [one], () => one.state("pay") === "approval-responded" && one.last === "assistant: w0 w0 " && one.ready);
    assert.equal(one.chat.messages.length, 2);
  },

  async "what follows an approval grows on the same message, through a lost connection and a kill"(on) {
    const { server, slow } = on;
    const tabs = await open(on, server.host, server.host);
    const n = 30;
    await askedToPay(tabs[0], tabs, { n, delay: 20 * slow });
    const whole = `assistant: ${words(n)}${words(n)}`;
    tabs[1].chat.addToolApprovalResponse({ id: "ap1", approved: true });
    const grows = async (to) => {
      await until(`${to} words more`, tabs, () => tabs.every((tab) => tab.last.length >= `assistant: ${words(n)}${words(to)}`.length));
      for (const tab of tabs) assert(tab.lines.length === 2 && whole.startsWith(tab.last), JSON.stringify(tab.lines));
      inTime(tabs.every((tab) => tab.last !== whole));
    };
    await grows(3);
    tabs[1].agent.reconnect();
    await grows(13);
    await server.restart();
    await until("paid", tabs, () => tabs.every((tab) => tab.state("pay") === "output-available" && tab.last === whole && tab.ready));
    for (const tab of tabs) {
      assert.equal(tab.chat.error, undefined);
      assert.equal(tab.lines.length, 2);
    }
  },

  async "twenty random kills and lost connections, and every tab has the same in the end"(on) {
    const { server, name } = on;
    const next = dice();
    const tabs = await open(on, server.host, server.host, server.host);
    const n = 150;
    tabs[0].say("hi", { n, delay: 30 });
    for (let round = 0; round < 20; round += 1) {
      await sleep(50 + next(400));
      if (next(2) === 0) await server.restart();
      else tabs[next(3)].agent.reconnect();
    }
    const whole = ["user: hi", `assistant: ${words(n)}`];
    await until("whole", tabs, () => tabs.every((tab) => tab.last === whole[1] && tab.ready));
    assert.deepEqual(lines(await server.messages(name)), whole);
    for (const tab of tabs) assert.deepEqual(tab.lines, whole);
  },

  async "an approval given in another tab than the one that asked is one message in both"(on) {
    const { server } = on;
    const tabs = await open(on, server.host, server.host);
    await askedToPay(tabs[0], tabs);
    tabs[1].chat.addToolApprovalResponse({ id: "ap1", approved: true });
    await until("one message in both", tabs, () => tabs.every((tab) => tab.ready && !tab.chat.error && tab.lines.join("|") === "user: pay|assistant: w0 w0 "));
    for (const tab of tabs) assert.equal(tab.state("pay"), "output-available");
  },

  async "a question that was asked while a tab was away stands before its answer when the tab comes back in the middle of it"(on) {
    const { server, slow } = on;
    const line = await Line.to(server.host);
    on.after(() => line.end());
    const [one, two] = await open(on, server.host, line.host);
    one.say("one", { n: 1 });
    await until("the first answer", [one, two], () => [one, two].every((tab) => tab.last === "assistant: w0 " && tab.ready));
    line.cut();
    one.say("two", { n: 40, delay: 40 * slow });
    await until("has begun", [one], () => one.last.includes("w2"));
    line.mend();
    await until("comes back", [two], () => two.lines.some((said) => said.includes("w2")));
    inTime((await server.messages(on.name)).length === 3);
    const whole = ["user: one", "assistant: w0 ", "user: two", `assistant: ${words(40)}`];
    await until("whole", [one, two], () => one.ready && two.ready && two.lines.length === 4 && two.lines.some((said) => said === whole[3]));
    assert.deepEqual(one.lines, whole);
    assert.deepEqual(two.lines, whole);
  },

  async "a tab that was cut off from one answer and comes back in the middle of the next is ready when that is over"(on) {
    const { server, slow } = on;
    const line = await Line.to(server.host);
    on.after(() => line.end());
    const [one, two] = await open(on, server.host, line.host);
    one.say("one", { n: 12, delay: 40 * slow });
    await until("is shown to both", [one, two], () => [one, two].every((tab) => tab.last.includes("w2")));
    line.cut();
    one.say("two", { n: 40, delay: 40 * slow });
    inTime((await server.messages(on.name)).length < 3);
    await until("the first answer is over", [one], async () => (await server.messages(on.name)).some((message) => text(message) === words(12)));
    await until("the next has begun", [one], () => one.last.includes("w2"));
    line.mend();
    await until("comes back", [two], () => two.last.includes("w2"));
    inTime((await server.messages(on.name)).length === 3);
    const whole = ["user: one", `assistant: ${words(12)}`, "user: two", `assistant: ${words(40)}`];
    await until("whole", [one, two], () => [one, two].every((tab) => tab.ready && tab.lines.join("|") === whole.join("|")));
  },
};

const within = (sentence) => !older || !beyondOlder.some((beginning) => sentence.startsWith(beginning));
run(Object.fromEntries(Object.entries(cases).filter(([sentence]) => within(sentence))));
