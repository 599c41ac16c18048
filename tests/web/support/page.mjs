// A page without a browser that has `useChat` of the `ai` packages with a plain `DefaultChatTransport`.
import assert from "node:assert/strict";
import { React, render } from "./dom.mjs";
import { take } from "./packages.mjs";
import { lines, until as wait } from "./until.mjs";

const { useChat } = await take("@ai-sdk/react");
const { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses, lastAssistantMessageIsCompleteWithToolCalls } = await take("ai");

/** What the page says of where it is, when the model asks. */
export const here = { city: "X" };

/** A page with the hook. It begins with the messages that the server has, as a page does that is loaded. */
export class Page {
  /** With `onRender`, which is called with the messages of each rendering. */
  static async load(host, name, { onRender } = {}) {
    const page = new Page();
    page.api = `http://${host}/agents/chat-agent/${name}`;
    page.posts = 0;
    page.called = 0;
    const messages = await (await fetch(`${page.api}/get-messages`)).json();
    const transport = new DefaultChatTransport({
      api: page.api,
      fetch: (url, init) => {
        if (init.method === "POST") page.posts += 1;
        return fetch(url, init);
      },
    });
    function Chat() {
      const chat = useChat({
        id: "of the page",
        messages,
        transport,
        resume: true,
        sendAutomaticallyWhen: (all) => lastAssistantMessageIsCompleteWithToolCalls(all) || lastAssistantMessageIsCompleteWithApprovalResponses(all),
        onToolCall: ({ toolCall }) => {
          if (toolCall.toolName !== "getLocation") return;
          page.called += 1;
          // Not awaited, as its documentation says: the hook would wait for itself.
          page.chat.addToolOutput({ tool: "getLocation", toolCallId: toolCall.toolCallId, output: here });
        },
      });
      React.useEffect(() => {
        page.chat = chat;
        onRender?.(chat.messages);
      });
      return null;
    }
    page.root = render(Chat);
    await wait("the hook", () => page.chat !== undefined);
    return page;
  }
  get lines() {
    return lines(this.chat.messages);
  }
  get last() {
    return this.lines.at(-1) ?? "";
  }
  get ready() {
    return this.chat.status === "ready";
  }
  state(tool) {
    return this.chat.messages.flatMap((message) => message.parts).findLast((part) => part.type === `tool-${tool}`)?.state;
  }
  say(words, body) {
    this.chat.sendMessage({ text: words }, { body });
  }
  /** What a Stop button does: the hook lets go, and the turn is cancelled. */
  async cancel() {
    await this.chat.stop();
    assert.equal((await fetch(`${this.api}/of%20the%20page/stream`, { method: "DELETE" })).status, 204);
  }
  close() {
    this.root.unmount();
  }
}
