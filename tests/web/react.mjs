// The published React hooks, unchanged, against the example server: what a person would see in each tab.
//
//   npm ci && node react.mjs
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { JSDOM } from "jsdom";
import WebSocket from "ws";
import { Server } from "./server.mjs";

const dom = new JSDOM("<!doctype html>", { url: "http://localhost/", pretendToBeVisual: true });
for (const name of ["window", "document", "HTMLElement", "Node", "localStorage", "sessionStorage", "navigator"]) {
  Object.defineProperty(globalThis, name, { value: name === "window" ? dom.window : dom.window[name], configurable: true });
}
globalThis.WebSocket = WebSocket;
const React = await import("react");
const { createRoot } = await import("react-dom/client");
const { useAgent } = await import("agents/react");
const { useAgentChat } = await import("@cloudflare/ai-chat/react");
const { createElement, Suspense } = React;

/** A tab: the hooks in a component, and what they give. */
class Tab {
  constructor(host, name) {
    const tab = this;
    function Chat() {
      const agent = useAgent({ agent: "ChatAgent", name, host });
      const chat = useAgentChat({
        agent,
        onToolCall: ({ toolCall, addToolOutput }) => {
          if (toolCall.toolName === "getLocation") addToolOutput({ toolCallId: toolCall.toolCallId, output: { city: "X" } });
        },
      });
      // Not while it is rendered, which may come to nothing.
      React.useEffect(() => void Object.assign(tab, { agent, chat }));
      return createElement("p", null, text(chat.messages));
    }
    this.root = createRoot(document.body.appendChild(document.createElement("div")));
    this.root.render(createElement(Suspense, { fallback: "loading" }, createElement(Chat)));
  }
  get texts() {
    return (this.chat?.messages ?? []).map((message) => `${message.role}: ${text([message])}`);
  }
  get last() {
    return this.texts.at(-1) ?? "";
  }
  say(words, body) {
    this.chat.sendMessage({ text: words }, { body });
  }
  close() {
    this.root.unmount();
    this.agent?.close();
  }
}

const text = (messages) => messages.flatMap((message) => message.parts.map((part) => part.text ?? "")).join("");

async function until(what, so, tabs = []) {
  for (let n = 0; !so(); n += 1) {
    if (n > 1500) {
      for (const tab of tabs) console.log(tab.chat?.status, tab.chat?.error?.message, tab.texts);
      assert.fail(`it does not come: ${what}`);
    }
    await sleep(10);
  }
}

const words = (n) => Array.from({ length: n }, (_, at) => `w${at} `).join("");
const ready = (tab) => until("ready", () => tab.chat?.status === "ready", [tab]);

const cases = {
  async "an answer streams, and a second tab sees the same"(server, name) {
    const [one, two] = [new Tab(server.host, name), new Tab(server.host, name)];
    await ready(one);
    await ready(two);
    one.say("hi", { n: 5, delay: 30 });
    await until("streams", () => one.last.startsWith("assistant: w0") && one.last.length < 25, [one]);
    await until("is over", () => one.last === `assistant: ${words(5)}` && one.chat.status === "ready", [one, two]);
    await until("in the other tab", () => two.last === `assistant: ${words(5)}`, [one, two]);
    assert.deepEqual(two.texts, one.texts);
    return [one, two];
  },
  async "a reload in the middle of a stream goes on without a lost or doubled character"(server, name) {
    const one = new Tab(server.host, name);
    await ready(one);
    one.say("hi", { n: 12, delay: 50 });
    await until("has begun", () => one.last.includes("w3"), [one]);
    one.close();
    const two = new Tab(server.host, name);
    await until("whole", () => two.last === `assistant: ${words(12)}`, [two]);
    await until("over", () => two.chat.status === "ready", [two]);
    return [two];
  },
  async "the same message grows to its end when the server is killed in the middle"(server, name) {
    const tabs = [new Tab(server.host, name), new Tab(server.host, name)];
    await ready(tabs[0]);
    await ready(tabs[1]);
    tabs[0].say("hi", { n: 20, delay: 50 });
    await until("has begun", () => tabs[0].last.includes("w4"), tabs);
    await server.kill();
    Object.assign(server, await server.again());
    await until("whole", () => tabs.every((tab) => tab.last === `assistant: ${words(20)}`), tabs);
    assert.equal(tabs[0].chat.messages.length, 2);
    return tabs;
  },
  async "an error that came while nobody was there is seen by who comes"(server, name) {
    const one = new Tab(server.host, name);
    await ready(one);
    one.say("hi", { n: 4, delay: 50, mode: "error" });
    await until("has begun", () => one.last.includes("w0"), [one]);
    one.close();
    await sleep(500);
    const two = new Tab(server.host, name);
    await until("the error", () => two.chat?.error?.message === "provider said no", [two]);
    return [two];
  },
  async "cancelled, cleared"(server, name) {
    const [one, two] = [new Tab(server.host, name), new Tab(server.host, name)];
    await ready(one);
    await ready(two);
    one.say("hi", { n: 100, delay: 50 });
    await until("has begun", () => one.last.includes("w3"), [one]);
    await one.chat.stop();
    await until("stopped", () => one.chat.status === "ready", [one]);
    await until("in the other tab", () => two.last === one.last && two.chat.status === "ready", [one, two]);
    one.chat.clearHistory();
    await until("empty", () => two.chat.messages.length === 0 && one.chat.messages.length === 0, [one, two]);
    return [one, two];
  },
  async "a tool of the page, and an approval"(server, name) {
    const one = new Tab(server.host, name);
    await ready(one);
    one.say("where am I?", { n: 1, mode: "tool" });
    await until("the answer goes on", () => one.last === "assistant: w0 w0 " && one.chat.status === "ready", [one]);
    const state = (tool) => one.chat.messages.at(-1).parts.find((part) => part.type === tool)?.state;
    assert.equal(state("tool-getLocation"), "output-available");
    one.say("pay", { n: 1, mode: "approval" });
    await until("asks", () => state("tool-pay") === "approval-requested" && one.chat.status === "ready", [one]);
    one.chat.addToolApprovalResponse({ id: "ap1", approved: true });
    await until("paid", () => state("tool-pay") === "output-available" && one.chat.status === "ready", [one]);
    return [one];
  },
  async "an approval is given in another tab than the one that asked"(server, name) {
    const [one, two] = [new Tab(server.host, name), new Tab(server.host, name)];
    await ready(one);
    await ready(two);
    one.say("pay", { n: 1, mode: "approval" });
    const state = (tab) => tab.chat.messages.at(-1)?.parts.find((part) => part.type === "tool-pay")?.state;
    await until("asks", () => state(two) === "approval-requested" && two.chat.status === "ready" && one.chat.status === "ready", [one, two]);
    if (process.env.TRACE) two.agent.addEventListener("message", (m) => console.log("<-", m.data.slice(0, 300)));
    two.chat.addToolApprovalResponse({ id: "ap1", approved: true });
    await until("paid", () => [one, two].every((tab) => state(tab) === "output-available" && tab.chat.status === "ready" && tab.last === "assistant: w0 w0 "), [one, two]);
    assert.equal(two.chat.error, undefined);
    assert.deepEqual(two.texts, one.texts);
    return [one, two];
  },
  async "what follows an approval grows on the same message, through a lost connection and a kill"(server, name) {
    const tabs = [new Tab(server.host, name), new Tab(server.host, name)];
    for (const tab of tabs) await ready(tab);
    const n = 30;
    tabs[0].say("pay", { n, delay: 20, mode: "approval" });
    const state = (tab) => tab.chat.messages.at(-1)?.parts.find((part) => part.type === "tool-pay")?.state;
    await until("asks", () => tabs.every((tab) => state(tab) === "approval-requested" && tab.chat.status === "ready"), tabs);
    const whole = `assistant: ${words(n)}${words(n)}`;
    tabs[1].chat.addToolApprovalResponse({ id: "ap1", approved: true });
    const grows = async (at, seen) => {
      await until(`w${at}`, () => seen.every((tab) => tab.last.length >= `assistant: ${words(n)}${words(at)}`.length), seen);
      for (const tab of tabs) assert(tab.texts.length === 2 && whole.startsWith(tab.last), JSON.stringify(tab.texts));
    };
    await grows(3, tabs);
    tabs[1].agent.reconnect();
    await grows(13, tabs);
    await server.kill();
    Object.assign(server, await server.again());
    await grows(20, tabs);
    await until("paid", () => tabs.every((tab) => state(tab) === "output-available" && tab.last === whole && tab.chat.status === "ready"), tabs);
    for (const tab of tabs) assert.equal(tab.chat.error, undefined);
    return tabs;
  },
  async "twenty random kills and lost connections, and every tab has the same in the end"(server, name) {
    const seed = Number(process.env.SEED ?? Date.now() % 100_000);
    console.log(`seed=${seed}`);
    let state = seed;
    const dice = (below) => (state = (state * 1_103_515_245 + 12_345) % 2_147_483_648) % below;
    const tabs = [new Tab(server.host, name), new Tab(server.host, name), new Tab(server.host, name)];
    for (const tab of tabs) await ready(tab);
    const n = 150;
    tabs[0].say("hi", { n, delay: 30 });
    for (let round = 0; round < 20; round += 1) {
      await sleep(50 + dice(400));
      if (dice(2) === 0) {
        await server.kill();
        Object.assign(server, await server.again());
      } else {
        tabs[dice(3)].agent.reconnect();
      }
    }
    const whole = `assistant: ${words(n)}`;
    await until("whole", () => tabs.every((tab) => tab.last === whole && tab.chat.status === "ready"), tabs);
    const stored = await (await fetch(`http://${server.host}/agents/chat-agent/${name}/get-messages`)).json();
    assert.deepEqual(stored.map((message) => `${message.role}: ${text([message])}`), ["user: hi", whole]);
    for (const tab of tabs) assert.deepEqual(tab.texts, ["user: hi", whole]);
    return tabs;
  },
};

const only = process.argv[2];
let failed = 0;
for (const [name, run] of Object.entries(cases)) {
  if (only && !name.includes(only)) continue;
  const server = await Server.start();
  let tabs = [];
  try {
    tabs = await run(server, `react-${crypto.randomUUID()}`);
    console.log(`ok ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}\n${error.stack}`);
  }
  for (const tab of tabs) tab.close();
  await server.kill();
}
console.log(`failed=${failed}`);
process.exit(failed === 0 ? 0 : 1);
