// The packages' own client and transport, without React: `AgentClient` and `WebSocketChatTransport`, used as their documentation says.
//
//   npm ci && node transport.mjs [part of a case's name]
import assert from "node:assert/strict";
import { WebSocket } from "undici";
import { inTime, run } from "./support/cases.mjs";
import { Line } from "./support/line.mjs";
import { take } from "./support/packages.mjs";
import { text, until, words } from "./support/until.mjs";

const { WebSocketChatTransport } = await take("agents/chat/transport");
const { AgentClient } = await take("agents/client");
const { readUIMessageStream } = await take("ai");

/** How long a client waits before it comes again; by itself up to five seconds. */
const soon = { minReconnectionDelay: 20, maxReconnectionDelay: 200 };

/** A client of a chat, with the transport that hears of what can be resumed. */
class Chat {
  constructor({ name, after }, host, options = {}) {
    this.states = [];
    this.client = new AgentClient({ agent: "ChatAgent", name, host, WebSocket, ...soon, onStateUpdate: (state, by) => this.states.push([by, state]) });
    this.transport = new WebSocketChatTransport({ agent: this.client, ...options });
    this.frames = [];
    this.client.addEventListener("message", ({ data }) => {
      const frame = JSON.parse(data);
      this.frames.push(frame);
      // What goes on by itself is not asked for by the transport, but by whoever shows it: the hook does the same.
      const shown = frame.type === "cf_agent_stream_resuming" && this.transport.handleStreamResuming(frame);
      if (frame.type === "cf_agent_stream_resuming" && !shown && this.continues) this.client.send(JSON.stringify({ type: "cf_agent_stream_resume_ack", id: frame.id }));
      if (frame.type === "cf_agent_stream_resume_none") this.transport.handleStreamResumeNone(frame);
      if (frame.type === "cf_agent_stream_pending") this.transport.handleStreamPending();
    });
    after(() => this.client.close());
  }

  say(words, body, abortSignal) {
    const message = { id: crypto.randomUUID(), role: "user", parts: [{ type: "text", text: words }] };
    return this.transport.sendMessages({ trigger: "submit-message", chatId: "chat", messages: [message], body, abortSignal });
  }

  /** Answers a call, and what is added to the message then. */
  async goneOnWith(answer) {
    this.continues = true;
    this.client.send(JSON.stringify({ ...answer, autoContinue: true }));
    this.transport.expectToolContinuation();
    const read = reading(await this.resume());
    assert.equal(await read.over, undefined);
    const added = () => this.frames.filter((frame) => frame.continuation);
    await until("its end", () => added().some((frame) => frame.done));
    // Each chunk once, whether it was read from the stream or beside it.
    const chunks = new Map(added().filter((frame) => frame.seq !== undefined).map((frame) => [frame.seq, JSON.parse(frame.body)]));
    return deltas({ chunks: [...chunks.values()] });
  }

  resume() {
    return this.transport.reconnectToStream({ chatId: "chat" });
  }
}

/** What a stream brings: its chunks as they come, and in `over` how it ended. */
function reading(stream) {
  const read = { chunks: [] };
  read.over = (async () => {
    for await (const chunk of stream) read.chunks.push(chunk);
  })().then(() => undefined, (error) => error);
  return read;
}

/** The message that the `ai` package makes of chunks. */
async function message(chunks) {
  let message;
  for await (message of readUIMessageStream({ stream: ReadableStream.from(chunks) }));
  return message;
}

const kinds = (read) => read.chunks.map((chunk) => chunk.type);
const deltas = (read) => read.chunks.map((chunk) => chunk.delta ?? "").join("");
const begun = (read) => until("has begun", () => deltas(read).includes("w2 "));
const interrupted = { type: "error", errorText: "WebSocket closed mid-stream" };

/** Two clients that are ready. */
async function pair(on) {
  const chats = [new Chat(on, on.server.host), new Chat(on, on.server.host)];
  for (const chat of chats) await chat.client.ready;
  return chats;
}

run({
  async "a client knows who it talks to, and the state, when it is ready"(on) {
    const [one] = await pair(on);
    assert.deepEqual([one.client.name, one.client.agent, one.client.identified], [on.name, "chat-agent", true]);
    assert.deepEqual(one.client.state, { hello: "state" });
  },

  async "a state that one client sets reaches the others, and comes not back to it"(on) {
    const [one, two] = await pair(on);
    one.client.setState({ hello: "changed" });
    await until("the state", () => two.client.state.hello === "changed");
    // It is answered behind whatever else was sent to the first.
    await one.client.call("words");
    assert.deepEqual(one.states, [["server", { hello: "state" }], ["client", { hello: "changed" }]]);
    assert.deepEqual(two.states, [["server", { hello: "state" }], ["server", { hello: "changed" }]]);
    await on.server.restart();
    const three = new Chat(on, on.server.host);
    await three.client.ready;
    assert.deepEqual(three.client.state, { hello: "changed" });
  },

  async "a state that cannot be read is refused, and the others are not told"(on) {
    const [one, two] = await pair(on);
    one.client.setState({ hello: 5 });
    await until("is refused", () => one.frames.some((frame) => frame.type === "cf_agent_state_error"));
    await two.client.call("words");
    assert.deepEqual(two.client.state, { hello: "state" });
  },

  async "what can be called is called, and what cannot be is refused"(on) {
    const [one] = await pair(on);
    assert.equal(await one.client.call("words"), 0);
    await reading(await one.say("one two three", { n: 4 })).over;
    assert.equal(await one.client.call("words", []), 7);
    assert.equal(await one.client.stub.words(), 7);
    await assert.rejects(one.client.call("nope", []), /Method nope does not exist/);
  },

  async "an answer comes chunk by chunk, in order, to its end"(on) {
    const [one] = await pair(on);
    const read = reading(await one.say("hi", { n: 5 }));
    assert.equal(await read.over, undefined);
    assert.deepEqual(kinds(read), ["start", "text-start", ...Array(5).fill("text-delta"), "text-end", "finish"]);
    const [, stored] = await on.server.messages(on.name);
    const made = await message(read.chunks);
    assert.deepEqual([made.id, text(made)], [stored.id, words(5)]);
    assert.equal(text(stored), words(5));
  },

  async "nothing is resumed where nothing is under way"(on) {
    const [one] = await pair(on);
    assert.equal(await one.resume(), null);
  },

  async "a stream whose line was lost is resumed, whole"(on) {
    const line = await Line.to(on.server.host);
    on.after(() => line.end());
    const one = new Chat(on, line.host);
    const read = reading(await one.say("hi", { n: 20, delay: 50 * on.slow }));
    await begun(read);
    line.cut();
    assert.equal(await read.over, undefined);
    assert.deepEqual(read.chunks.at(-1), interrupted);
    line.mend();
    await one.client.ready;
    const stream = await one.resume();
    inTime(stream);
    const again = reading(stream);
    assert.equal(await again.over, undefined);
    assert.equal(deltas(again), words(20));
    assert.equal((await message(again.chunks)).id, read.chunks[0].messageId);
  },

  async "a stream whose server was killed is resumed, whole"(on) {
    const one = new Chat(on, on.server.host);
    const read = reading(await one.say("hi", { n: 20, delay: 50 * on.slow }));
    await begun(read);
    await on.server.kill();
    await read.over;
    inTime(read.chunks.at(-1).type !== "finish");
    assert.deepEqual(read.chunks.at(-1), interrupted);
    await on.server.again();
    await one.client.ready;
    let stream;
    // Until the turn is under way again there is nothing to be resumed.
    await until("is under way", async () => {
      inTime((await on.server.messages(on.name)).length === 1);
      return (stream = await one.resume()) !== null;
    });
    const again = reading(stream);
    assert.equal(await again.over, undefined);
    assert.equal(deltas(again), words(20));
    assert.equal((await message(again.chunks)).id, read.chunks[0].messageId);
  },

  async "a signal cancels the turn, where the client was told so"(on) {
    const one = new Chat(on, on.server.host, { cancelOnClientAbort: true });
    const abort = new AbortController();
    const read = reading(await one.say("hi", { n: 100, delay: 50 * on.slow }, abort.signal));
    await begun(read);
    abort.abort();
    assert.equal((await read.over).name, "AbortError");
    await until("it has ended", () => one.frames.some((frame) => frame.done && frame.outcome === "aborted"));
    assert.notEqual(text((await on.server.messages(on.name))[1]), words(100));
  },

  async "a signal alone lets go of the stream, and the answer goes on"(on) {
    const one = new Chat(on, on.server.host);
    const abort = new AbortController();
    const read = reading(await one.say("hi", { n: 10, delay: 50 * on.slow }, abort.signal));
    await begun(read);
    abort.abort();
    inTime((await read.over)?.name === "AbortError");
    await until("it is whole", async () => (await on.server.messages(on.name)).length === 2);
    assert.equal(text((await on.server.messages(on.name))[1]), words(10));
  },

  async "an error of the model, and one of the program, reach the reader"(on) {
    const [one] = await pair(on);
    for (const [mode, said] of [["error", "provider said no"], ["throw", "boom"]]) {
      const read = reading(await one.say(mode, { n: 2, mode }));
      assert.equal((await read.over).message, said);
      // And whoever comes behind it.
      const two = new Chat(on, on.server.host);
      await two.client.ready;
      const late = reading(await two.resume());
      await late.over;
      assert.deepEqual(late.chunks.at(-1), { type: "error", errorText: said });
      assert.equal(deltas(late), words(2));
    }
  },

  async "a tool's result that the client gives is gone on with"(on) {
    const [one] = await pair(on);
    await reading(await one.say("where", { n: 1, mode: "tool" })).over;
    const result = { type: "cf_agent_tool_result", toolCallId: "call1", toolName: "getLocation", output: { city: "X" } };
    assert.equal(await one.goneOnWith(result), "w0 ");
    const [, answer] = await on.server.messages(on.name);
    assert.deepEqual([text(answer), answer.parts.find((part) => part.type === "tool-getLocation").output], ["w0 w0 ", { city: "X" }]);
  },

  async "an approval that the client gives is gone on with"(on) {
    const [one] = await pair(on);
    await reading(await one.say("pay", { n: 1, mode: "approval" })).over;
    assert.equal(await one.goneOnWith({ type: "cf_agent_tool_approval", toolCallId: "call2", approved: true }), "w0 ");
    const [, answer] = await on.server.messages(on.name);
    assert.deepEqual(answer.parts.find((part) => part.type === "tool-pay").output, { paid: true });
  },
});
