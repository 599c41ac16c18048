// A tab without a browser: the published React hooks, unchanged, in a component, and what they give.
//
// Where `useAgentChat` comes from has changed since the older packages.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { React, render } from "./dom.mjs";
import { copy, folder, take } from "./packages.mjs";
import { lines } from "./until.mjs";

const { useAgent } = await take("agents/react");
const split = existsSync(join(folder, "node_modules/@cloudflare/ai-chat"));
const { useAgentChat } = await take(split ? "@cloudflare/ai-chat/react" : "agents/ai-react");

let copies = 0;

/** The hook with a cache of loaded conversations of its own, as each tab of a browser has it. Not in older packages. */
export const ownHook = async () => (await copy("agents/chat/react", (copies += 1))).useAgentChat;

/** What the page says of where it is, when the model asks. */
const here = { city: "X" };

/** How long a tab waits before it comes again, in ms; by itself up to five seconds. */
const soon = { minReconnectionDelay: 20, maxReconnectionDelay: 200 };

export class Tab {
  /** With `onRender`, which is called with the messages of each rendering, `onUncaughtError`, with what the hooks throw, and an `ownHook`. */
  constructor(host, name, { onRender, onUncaughtError, hook = useAgentChat } = {}) {
    const tab = this;
    function Chat() {
      const agent = useAgent({ agent: "ChatAgent", name, host, ...soon });
      const chat = hook({
        agent,
        // Older ones have to be told.
        autoContinueAfterToolResult: true,
        onToolCall: ({ toolCall, addToolOutput }) => {
          if (toolCall.toolName === "getLocation") addToolOutput({ toolCallId: toolCall.toolCallId, output: here });
        },
      });
      // Not while it is rendered, which may come to nothing.
      React.useEffect(() => {
        Object.assign(tab, { agent, chat });
        onRender?.(chat.messages);
      });
      return null;
    }
    this.root = render(Chat, onUncaughtError);
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
