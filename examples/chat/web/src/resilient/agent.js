// `useAgentChat` that outlasts a server that is away, and a reload of the page meanwhile.
import { resilientFetch } from "./fetch.js";

/** Frames that are sent until they are acknowledged, with the field that identifies each. */
const KEPT = { cf_agent_use_chat_request: "id", cf_agent_tool_approval: "toolCallId", cf_agent_tool_result: "toolCallId" };

/** States of a tool call that has no answer. */
const UNANSWERED = ["input-streaming", "input-available", "approval-requested"];

/** The agent of `useAgent`, which sends again what was lost with a connection. */
export function resilientAgent(agent) {
  const url = agent.getHttpUrl();
  if (!url || agent.outbox) return agent;
  const outbox = (agent.outbox = new Outbox(url));
  const send = agent.send.bind(agent);
  // Frames that the agent sends by itself when it is connected.
  const queued = new Set();
  agent.send = (text) => {
    const frame = JSON.parse(text);
    const id = frame[KEPT[frame.type]];
    if (id) outbox.add(id, text);
    if (frame.type === "cf_agent_chat_request_cancel") outbox.remove(frame.id);
    if (frame.type === "cf_agent_chat_clear") outbox.clear();
    const isSent = send(text);
    if (id && !isSent) queued.add(id);
    return isSent;
  };
  agent.addEventListener("open", () => {
    for (const [id, text] of outbox.frames) if (!queued.has(id)) send(text);
    queued.clear();
  });
  agent.addEventListener("message", ({ data }) => outbox.acknowledge(JSON.parse(data)));
  return agent;
}

/** The stored conversation, for `useAgentChat({ agent, getInitialMessages })`. */
export async function getInitialMessages({ url }) {
  const outbox = new Outbox(url);
  for (const [id, text] of outbox.frames) {
    const { type, init } = JSON.parse(text);
    if (type !== "cf_agent_use_chat_request") continue;
    // A question that an earlier page could not send has to be in the conversation.
    await (await resilientFetch(url, { method: "POST", headers: { "content-type": "application/json" }, body: init.body })).body?.cancel();
    outbox.remove(id);
  }
  const address = new URL(url);
  address.pathname += "/get-messages";
  const response = await resilientFetch(address);
  if (!response.ok) throw new Error(await response.text());
  return response.json();
}

/** Frames that a server has not acknowledged. They outlive the page. */
class Outbox {
  constructor(url) {
    this.key = `unsent ${new URL(url).pathname}`;
    this.frames = new Map(JSON.parse(sessionStorage.getItem(this.key) ?? "[]"));
  }
  add(id, text) {
    this.frames.set(id, text);
    this.store();
  }
  remove(id) {
    if (this.frames.delete(id)) this.store();
  }
  clear() {
    this.frames.clear();
    this.store();
  }
  store() {
    try {
      sessionStorage.setItem(this.key, JSON.stringify([...this.frames]));
    } catch {
      // Too long for the browser: a reload before it is sent loses it.
    }
  }
  /** Removes what a frame of the server answers. */
  acknowledge({ id, toolCallId, message, messages = [message ?? {}] }) {
    this.remove(id);
    this.remove(toolCallId);
    for (const part of messages.flatMap(({ parts = [] }) => parts)) {
      if (part.toolCallId && !UNANSWERED.includes(part.state)) this.remove(part.toolCallId);
    }
  }
}
