// A tab without a browser: the published React hooks, unchanged, in a component, and what they give.
//
// `HOOKS` is a folder whose packages are taken instead of those of this one; where `useAgentChat` comes from has changed since.
import { existsSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { JSDOM } from "jsdom";
import { WebSocket } from "undici";
import { lines } from "./until.mjs";

const dom = new JSDOM("<!doctype html>", { url: "http://localhost/", pretendToBeVisual: true });
for (const name of ["window", "document", "HTMLElement", "Node", "localStorage", "sessionStorage", "navigator"]) {
  Object.defineProperty(globalThis, name, { value: name === "window" ? dom.window : dom.window[name], configurable: true });
}
globalThis.WebSocket = WebSocket;

const folder = resolve(process.env.HOOKS ?? join(import.meta.dirname, ".."));
const there = createRequire(join(folder, "package.json"));
const take = (name) => import(pathToFileURL(there.resolve(name)));
const React = (await take("react")).default;
const { createRoot } = await take("react-dom/client");
const { useAgent } = await take("agents/react");
const split = existsSync(join(folder, "node_modules/@cloudflare/ai-chat"));
const { useAgentChat } = await take(split ? "@cloudflare/ai-chat/react" : "agents/ai-react");

/** What the page says of where it is, when the model asks. */
const here = { city: "X" };

/** How long a tab waits before it comes again, in ms; by itself up to five seconds. */
const soon = { minReconnectionDelay: 20, maxReconnectionDelay: 200 };

export class Tab {
  constructor(host, name) {
    const tab = this;
    function Chat() {
      const agent = useAgent({ agent: "ChatAgent", name, host, ...soon });
      const chat = useAgentChat({
        agent,
        // Older ones have to be told.
        autoContinueAfterToolResult: true,
        onToolCall: ({ toolCall, addToolOutput }) => {
          if (toolCall.toolName === "getLocation") addToolOutput({ toolCallId: toolCall.toolCallId, output: here });
        },
      });
      // Not while it is rendered, which may come to nothing.
      React.useEffect(() => void Object.assign(tab, { agent, chat }));
      return null;
    }
    this.root = createRoot(document.body.appendChild(document.createElement("div")));
    this.root.render(React.createElement(React.Suspense, { fallback: "loading" }, React.createElement(Chat)));
  }
  get lines() {
    return lines(this.chat?.messages ?? []);
  }
  get last() {
    return this.lines.at(-1) ?? "";
  }
  get ready() {
    return this.chat?.status === "ready" && !this.chat.isServerStreaming;
  }
  /** The state of the last call of a tool. */
  state(tool) {
    return this.chat.messages.flatMap((message) => message.parts).findLast((part) => part.type === `tool-${tool}`)?.state;
  }
  say(words, body) {
    this.chat.sendMessage({ text: words }, { body });
  }
  close() {
    this.root.unmount();
    this.agent?.close();
  }
}
