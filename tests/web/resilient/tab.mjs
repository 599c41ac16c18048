// A tab for each npm client, with the recipe of the guide (docs/guide/src/reference/wire.md): in a browser, and without one.
import { useChat } from "@ai-sdk/react";
import { useAgentChat } from "@cloudflare/ai-chat/react";
import { useAgent } from "agents/react";
import { createElement, Suspense, useEffect } from "react";
import { createRoot } from "react-dom/client";
import { getInitialMessages, resilientAgent } from "../../../examples/chat/web/src/resilient/agent.js";
import { openChat } from "../../../examples/chat/web/src/resilient/chat.js";

/** What the page says of where it is, when the model asks. */
const here = { city: "X" };

const text = (message) => message.parts.map((part) => part.text ?? "").join("");

export class Tab {
  chat = undefined;
  /** All that it has shown wrongly: an answer that became shorter, or another. */
  wrong = [];
  #shown = new Map();

  /** A tab with `useChat` (`hook` is `"chat"`) or `useAgentChat` (`"agent"`). */
  constructor(hook, host, name) {
    this.root = createRoot(document.body.appendChild(document.createElement("div")));
    if (hook === "chat") this.#open(`http://${host}/agents/chat-agent/${name}`);
    else this.#render(() => this.#agent(host, name));
  }

  async #open(api) {
    const onToolCall = ({ toolCall }) => {
      if (toolCall.toolName === "getLocation") chat.addToolOutput({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output: here });
    };
    const chat = await openChat(api, { onToolCall });
    this.#render(() => useChat({ chat, resume: true }));
  }
  #agent(host, name) {
    const agent = resilientAgent(useAgent({ agent: "ChatAgent", name, host, minReconnectionDelay: 20, maxReconnectionDelay: 500 }));
    this.agent = agent;
    const onToolCall = ({ toolCall, addToolOutput }) => {
      if (toolCall.toolName === "getLocation") addToolOutput({ toolCallId: toolCall.toolCallId, output: here });
    };
    return useAgentChat({ agent, getInitialMessages, onToolCall });
  }
  #render(hook) {
    const Chat = () => {
      const chat = hook();
      useEffect(() => {
        this.chat = chat;
        this.#see(chat.messages);
      });
      return null;
    };
    this.root.render(createElement(Suspense, { fallback: null }, createElement(Chat)));
  }
  #see(messages) {
    for (const message of messages.filter(({ role }) => role === "assistant")) {
      const [before, now] = [this.#shown.get(message.id) ?? "", text(message)];
      // An answer that is played back grows anew.
      if (!before.startsWith(now) && !now.startsWith(before)) this.wrong.push([before, now]);
      if (now.length > before.length) this.#shown.set(message.id, now);
    }
  }

  get lines() {
    return (this.chat?.messages ?? []).map((message) => `${message.role}: ${text(message)}`);
  }
  get last() {
    return this.lines.at(-1) ?? "";
  }
  get ready() {
    return this.chat?.status === "ready" && !this.chat.isServerStreaming && (this.agent?.readyState ?? WebSocket.OPEN) === WebSocket.OPEN;
  }
  get seen() {
    return { lines: this.lines, last: this.last, ready: this.ready, status: this.chat?.status, error: this.chat?.error?.message, pay: this.state("pay"), wrong: this.wrong };
  }
  /** The state of the last call of a tool. */
  state(tool) {
    return this.chat?.messages.flatMap((message) => message.parts).findLast((part) => part.type === `tool-${tool}`)?.state;
  }
  say(words, body) {
    this.chat.sendMessage({ text: words }, { body });
  }
  approve(id, approved) {
    this.chat.addToolApprovalResponse({ id, approved });
  }
  close() {
    this.root.unmount();
    this.agent?.close();
  }
}
