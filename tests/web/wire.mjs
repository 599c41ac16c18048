// Performs the recorded sessions against the example server, and compares what each client receives, frame by frame.
//
//   npm ci && node wire.mjs [part of a case's name]
//
// What is left out of the comparison stands in `comparable` and `plain`, with the reasons in docs/guide/src/reference/wire.md.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import WebSocket from "ws";
import { inTime, run } from "./support/cases.mjs";
import { text, until, words } from "./support/until.mjs";

/** The recording by section, and in each by client what was sent and received. */
function recorded(file) {
  const sections = new Map();
  let section = { sent: [], received: new Map() };
  sections.set("before", section);
  for (const line of readFileSync(join(import.meta.dirname, "recorded", file), "utf8").split("\n")) {
    if (line.startsWith("## ")) {
      section = { sent: [], received: new Map() };
      sections.set(line.slice(3).split(" ")[0], section);
      continue;
    }
    const [, client, way, frame] = line.match(/^\s+\[(\w+)\] (<-|->) (.*)$/) ?? [];
    if (!client) continue;
    if (way === "->") section.sent.push([client, JSON.parse(frame)]);
    else section.received.set(client, [...(section.received.get(client) ?? []), JSON.parse(frame)]);
  }
  return sections;
}

class Client {
  constructor(host, agent) {
    this.frames = [];
    this.socket = new WebSocket(`ws://${host}/agents/chat-agent/${agent}?_pk=${crypto.randomUUID()}`);
    this.reached = 0;
    this.socket.on("message", (data) => {
      const frame = JSON.parse(data);
      if (frame.id === "reached") this.reached += 1;
      else this.frames.push(frame);
    });
    this.opened = new Promise((resolve, reject) => this.socket.on("open", resolve).on("error", reject));
  }
  send(frame) {
    this.socket.send(JSON.stringify(frame));
  }
  has(so) {
    return this.frames.some(so);
  }
  /** When such a frame comes, at once. */
  async hears(so) {
    await new Promise((resolve) => {
      const look = () => (this.has(so) ? resolve() : this.socket.once("message", look));
      look();
    });
  }
  /** Nothing was shown of an answer before it was over. */
  get cameLate() {
    return this.frames.find((frame) => frame.type === "cf_agent_use_chat_response" && !frame.connect)?.done === true;
  }
  /** Everything that the server had sent by now is here: it answers behind it. */
  async reach() {
    const before = this.reached;
    this.send({ type: "rpc", id: "reached", method: "words", args: [] });
    await until("the answer to a call", () => this.reached > before);
  }
  close() {
    this.socket.close();
  }
}

/** Ids that the script of the session has given; all others were made by a server. */
const given = /^(req\d|u-.*|t1|call\d|ap1|p\w{1,2}|rt|ra|user|assistant|\d+)$/;

/** A frame without what differs from server to server. */
function plain(frame) {
  return JSON.parse(JSON.stringify(frame), (key, value) => {
    if (["id", "messageId", "name"].includes(key) && typeof value === "string" && !given.test(value)) return key === "name" ? value.replace(/^(wire|tool)-.*/, "*") : "*";
    // The parts of a static tool have its name in their type; so has the `ai` package.
    if (key === "parts") return value.map(({ toolName, ...part }) => plain(part));
    // The message says of itself what became of it.
    if (key === "metadata") return undefined;
    // A part that an error has cut off is over.
    if (key === "state" && value === "streaming") return "done";
    if (key === "body" && typeof value === "string" && value.startsWith("{")) return plain(JSON.parse(value));
    return value;
  });
}

/** Says that there is a log to be asked for. */
const offers = (frame) => frame.type === "cf_agent_stream_pending" || frame.type === "cf_agent_stream_resuming";

function comparable(frames) {
  const seen = [];
  let told;
  for (const frame of frames.map(plain)) {
    // There are no MCP servers here.
    if (frame.type === "cf_agent_mcp_servers") continue;
    // What a client that comes again has missed.
    if (frame.connect) continue;
    // So that the page of a client takes what adds to an answer, and not the stream that has asked: if the answer runs by now, its probe is told
    // this, and the offer behind it is to all.
    if (frame.reason === "continuation-owned") {
      told = frame.probeId;
      continue;
    }
    if (frame.continuation && frame.replay && frame.body && frame.seq === undefined) continue;
    // How much of a log is a replay is a matter of moments.
    if (frame.replayComplete) continue;
    // So is whether a turn that is asked for waits or runs; what counts is that it is offered, and to whom asked.
    if (offers(frame)) {
      const before = seen.at(-1)?.type === "offered" && seen.at(-1).id === frame.id ? seen.pop().asked : [];
      const probe = frame.probeId ?? told;
      told = undefined;
      seen.push({ type: "offered", id: frame.id, asked: probe ? [...before, probe] : before });
      continue;
    }
    if (frame.type === "cf_agent_use_chat_response" && frame.seq !== undefined) delete frame.replay;
    // A message that says how its turn ended takes the place of what a client has made of the chunks.
    if (["cf_agent_chat_messages", "cf_agent_message_updated"].includes(frame.type) && seen.at(-1)?.outcome === "error") continue;
    // Behind the end of a cancelled turn its client is sent what it no longer listened to.
    if (frame.type === "cf_agent_chat_messages" && seen.at(-1)?.outcome === "aborted") continue;
    // Before its end an answer comes by itself to those who have seen it grow; there with the conversation.
    if (frame.type === "cf_agent_use_chat_response" && (frame.done || frame.error) && seen.at(-1)?.type === "cf_agent_message_updated") {
      seen.push({ type: "cf_agent_chat_messages", messages: [seen.pop().message] });
    }
    if (frame.type === "cf_agent_chat_messages") {
      // Shown once, when it is stored, and whole; there it comes twice, first as the client has sent it.
      if (seen.at(-1)?.type === frame.type) seen.pop();
      frame.messages = frame.messages.slice(-1);
    }
    seen.push(frame);
  }
  return seen;
}

/** Of turns that wait for each other, those of each by themselves: when a question arrives is a matter of moments. */
function byTurn(frames) {
  const turns = {};
  for (const frame of frames) (turns[frame.id ?? ""] ??= []).push(frame);
  return turns;
}

class Session {
  constructor({ server, name, slow }, file) {
    Object.assign(this, { server, slow, agent: `${file === "chat.txt" ? "wire" : "tool"}-${name}`, sections: recorded(file), clients: {} });
  }

  async join(name) {
    const client = new Client(this.server.host, this.agent);
    this.clients[name] = client;
    await client.opened;
    await until("the state", () => client.has((frame) => frame.type === "cf_agent_state"));
    await client.reach();
    return client;
  }

  leave(name) {
    this.clients[name].close();
    delete this.clients[name];
  }

  /**
   * Performs a section: sends what was sent, each when `before` is through, and compares what comes with what came; unless the moment that it is
   * about was `missed`.
   */
  async section(name, before = async () => {}, missed = () => false) {
    const { clients } = this;
    const recording = this.sections.get(name);
    for (const [at, [client, frame]] of recording.sent.entries()) {
      await before(at, client, frame);
      // The id of a continuation is the server's.
      if (frame.type === "cf_agent_stream_resume_ack" && !given.test(frame.id)) {
        frame.id = clients[client].frames.findLast(offers).id;
      }
      clients[client].send(this.slower(frame));
    }
    const all = (frames) => (name === "E" ? byTurn(comparable(frames.filter((frame) => !["cf_agent_chat_messages", "cf_agent_message_updated"].includes(frame.type)))) : comparable(frames));
    const expected = Object.fromEntries([...recording.received].map(([client, frames]) => [client, all(frames)]));
    const got = () => Object.fromEntries(Object.keys(expected).map((client) => [client, all(clients[client].frames)]));
    // More than was recorded is a difference too: in this section, or as the beginning of the next.
    await until(`what was recorded in ${name}`, () => same(got(), expected) || missed()).catch(() => {});
    inTime(!missed());
    for (const client of Object.values(clients)) await client.reach?.();
    assert.deepEqual(got(), expected, `section ${name}`);
    for (const client of Object.values(clients)) client.frames = [];
  }

  /** The same question, answered more slowly. */
  slower(frame) {
    if (frame.type !== "cf_agent_use_chat_request" || this.slow === 1) return frame;
    const body = JSON.parse(frame.init.body);
    return { ...frame, init: { ...frame.init, body: JSON.stringify({ ...body, delay: (body.delay ?? 10) * this.slow }) } };
  }

  /** Nothing comes behind the last section. */
  async end() {
    for (const client of Object.values(this.clients)) {
      await client.reach();
      client.close();
      assert.deepEqual(comparable(client.frames), []);
    }
  }
}

function same(one, other) {
  try {
    assert.deepEqual(one, other);
    return true;
  } catch {
    return false;
  }
}

run({
  async "a chat: questions, observers, a lost connection, errors, a cancelled answer, a queue, state, calls, clearing"(on) {
    const session = new Session(on, "chat.txt");
    const { clients } = session;
    const section = (...how) => session.section(...how);
    await session.join("A");
    await section("A");
    await session.join("B");
    await section("B");
    await section("B2");
    assert.deepEqual((await on.server.messages(session.agent)).map(text), ["hi", words(2)]);
    // A goes in the middle of the stream, and comes again as A2.
    await section("C", async (at, client) => {
      if (client !== "A2" || clients.A2) return;
      await until("w3", () => clients.B.has((frame) => frame.seq === 5) && clients.A.has((frame) => frame.seq === 4));
      const { frames } = clients.A;
      session.leave("A");
      await session.join("A2");
      inTime(!clients.B.has((frame) => frame.done));
      clients.A = { frames: frames.filter((frame) => !(frame.seq > 4)) };
    }, () => clients.A2?.cameLate || clients.A2?.has((frame) => frame.type === "cf_agent_stream_resume_none"));
    delete clients.A;
    await section("D");
    await session.join("C");
    await section("D2");
    await section("D3");
    await section("F", async (at) => {
      if (at === 1) await until("w3", () => clients.A2.has((frame) => frame.seq === 5));
    }, () => clients.A2.has((frame) => frame.seq === 6));
    for (const name of ["E", "S", "P", "H"]) await section(name);
    await session.end();
  },

  async "tools: one that the client answers, one that a person approves, an answer that comes twice"(on) {
    const session = new Session(on, "tools.txt");
    const { clients } = session;
    await session.join("A");
    await session.join("B");
    const offered = async (at, client, frame) => {
      if (frame.type !== "cf_agent_stream_resume_ack") return;
      await clients[client].hears(offers);
    };
    // The recorded client had said that it wants the log when the answer had ended.
    const ended = async (at, client, frame) => {
      if (frame.type === "cf_agent_stream_resume_ack") await clients[client].hears((there) => there.done);
    };
    await session.section("before");
    await session.section("T1");
    await session.section("T2", ended);
    await session.section("T3");
    await session.section("T4", offered, () => clients.A.cameLate);
    await session.section("T5");
    await session.end();
  },
});
