// Performs the recorded sessions against the example server, and compares what each client receives, frame by frame.
//
//   npm ci && node wire.mjs
//
// What is left out of the comparison stands in `leftOut` and `plain`, each with its row in docs/wire.md.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import WebSocket from "ws";
import { Server } from "./server.mjs";

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
    this.socket.on("message", (data) => {
      const frame = JSON.parse(data);
      this.frames.push(frame);
      this.heard?.(frame);
    });
    this.opened = new Promise((resolve, reject) => this.socket.on("open", resolve).on("error", reject));
  }
  send(frame) {
    this.socket.send(JSON.stringify(frame));
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

function comparable(frames) {
  const seen = [];
  for (const frame of frames.map(plain)) {
    // There are no MCP servers here.
    if (frame.type === "cf_agent_mcp_servers") continue;
    // What a client that comes again has missed.
    if (frame.connect) continue;
    // So that the page of a client takes what adds to an answer, and not the stream that has asked.
    if (frame.reason === "continuation-owned") continue;
    if (frame.continuation && frame.replay && frame.body && frame.seq === undefined) continue;
    // How much of a log is a replay is a matter of moments.
    if (frame.replayComplete) continue;
    if (frame.type === "cf_agent_use_chat_response" && frame.seq !== undefined) delete frame.replay;
    // A message that says how its turn ended takes the place of what a client has made of the chunks.
    if (frame.type === "cf_agent_chat_messages" && seen.at(-1)?.outcome === "error") continue;
    if (frame.type === "cf_agent_chat_messages") {
      // Shown once, when it is stored, and whole; there it comes twice, first as the client has sent it.
      if (seen.at(-1)?.type === frame.type) seen.pop();
      frame.messages = frame.messages.slice(-1);
    }
    seen.push(frame);
  }
  return seen;
}

const quiet = 400;

/** Until nothing has come for a while. */
async function settled(clients) {
  const count = () => Object.values(clients).reduce((sum, client) => sum + client.frames.length, 0);
  for (let before = -1; before !== count(); ) {
    before = count();
    await sleep(quiet);
  }
}

let differences = 0;

/** Of turns that wait for each other, those of each by themselves: when a question arrives is a matter of moments. */
const byTurn = (frames) => Map.groupBy ? Object.fromEntries(Map.groupBy(frames, (frame) => frame.id ?? "")) : frames.reduce((all, frame) => ({ ...all, [frame.id ?? ""]: [...(all[frame.id ?? ""] ?? []), frame] }), {});

function compare(name, section, clients) {
  for (const [client, expected] of section.received) {
    const all = (frames) => (name === "E" ? byTurn(comparable(frames.filter((frame) => frame.type !== "cf_agent_chat_messages"))) : comparable(frames));
    const got = all(clients[client].frames);
    try {
      assert.deepEqual(got, all(expected));
      console.log(`same ${name} [${client}] ${clients[client].frames.length} frames`);
    } catch (error) {
      differences += 1;
      console.log(`DIFFERENT ${name} [${client}]\n${error.message}`);
    }
  }
  for (const client of Object.values(clients)) client.frames = [];
}

async function session(host, file, perform) {
  const sections = recorded(file);
  const clients = {};
  const agent = `wire-${crypto.randomUUID()}`;
  const join = async (name) => {
    clients[name] = new Client(host, agent);
    await clients[name].opened;
  };
  const leave = (name) => {
    clients[name].close();
    delete clients[name];
  };
  /** Performs a section: sends what was sent, `before` each frame. */
  const section = async (name, before = async () => {}) => {
    const recording = sections.get(name);
    for (const [at, [client, frame]] of recording.sent.entries()) {
      await before(at, client, frame);
      // The id of a continuation is the server's.
      if (frame.type === "cf_agent_stream_resume_ack" && !given.test(frame.id)) {
        frame.id = clients[client].frames.findLast((there) => there.type === "cf_agent_stream_resuming").id;
      }
      clients[client].send(frame);
    }
    await settled(clients);
    compare(name, recording, clients);
  };
  await perform({ clients, agent, join, leave, section });
  for (const client of Object.values(clients)) client.close();
}

const until = async (so) => {
  for (let n = 0; !so(); n += 1) {
    assert(n < 1000, "it does not come");
    await sleep(10);
  }
};

const server = await Server.start();
try {
  await session(server.host, "chat.txt", async ({ clients, agent, join, leave, section }) => {
    const here = () => settled(clients);
    await join("A");
    await here();
    await section("A");
    await join("B");
    await here();
    await section("B");
    await section("B2");
    const messages = await (await fetch(`http://${server.host}/agents/chat-agent/${agent}/get-messages`)).json();
    assert.deepEqual(messages.map((message) => message.parts.map((part) => part.text).join("")), ["hi", "w0 w1 "]);
    // A goes in the middle of the stream, and comes again as A2.
    let a;
    await section("C", async (at, client) => {
      if (client !== "A2" || clients.A2) return;
      await until(() => clients.B.frames.some((frame) => frame.seq === 5));
      a = clients.A;
      a.close();
      delete clients.A;
      await join("A2");
      await until(() => clients.A2.frames.some((frame) => frame.type === "cf_agent_state"));
      clients.A = { frames: a.frames.filter((frame) => !(frame.seq > 4)), close() {} };
    });
    delete clients.A;
    await section("D");
    await join("C");
    await here();
    await section("D2");
    await section("D3");
    await section("F", async (at) => {
      if (at === 1) await until(() => clients.A2.frames.some((frame) => frame.seq === 5));
    });
    await section("E");
    await section("S");
    await section("P");
    await section("H");
    leave("B");
  });
  await session(server.host, "tools.txt", async ({ clients, join, section }) => {
    await join("A");
    await join("B");
    await settled(clients);
    const resumed = async (at, client, frame) => {
      if (frame.type === "cf_agent_stream_resume_ack") await until(() => clients[client].frames.some((there) => there.type === "cf_agent_stream_resuming"));
    };
    await section("before");
    await section("T1");
    // The recorded client had said so when the answer had ended.
    await section("T2", async (at, client, frame) => {
      if (frame.type === "cf_agent_stream_resume_ack") await until(() => clients[client].frames.some((there) => there.done));
    });
    for (const name of ["T3", "T4", "T5"]) await section(name, resumed);
  });
} finally {
  await server.kill();
}
console.log(`different=${differences}`);
process.exitCode = differences === 0 ? 0 : 1;
