// Random kills of the server while three tabs of one chat ask and stop, and are reloaded, closed and opened.
//
//   ROUNDS=50 SEED=1 node kills.mjs [part of a case's name]
//   ROUNDS=50 node seven.mjs kills.mjs     the same with version 7 of the `ai` package
//
// A round has one SIGKILL, at a random moment. At its end every tab shows what is stored, and nothing that any tab has shown
// meanwhile was other than the beginning of what is stored. `DETAIL=1` prints what happens.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { run } from "./support/cases.mjs";
import { Page } from "./support/page.mjs";
import { Tab, ownHook } from "./support/tab.mjs";
import { dice, lines, text, until, words } from "./support/until.mjs";

const ROUNDS = Number(process.env.ROUNDS ?? 2);
/** Rounds in one chat, before the next one is begun. */
const ROUNDS_OF_A_CHAT = 5;
const TABS = 3;
/** When the last actions of a round begin, and before when its kill comes, in ms. */
const ACTIONS_END = 500;
const KILL_BEFORE = 700;

const detail = (...what) => process.env.DETAIL && console.log(...what);
const wholeOf = (question) => words(Number(question.match(/(\d+) words/)[1]));

/** What the tabs of a chat have shown. */
class Watch {
  longest = new Map();
  wrong = undefined;

  /** The messages of one rendering. */
  see(messages) {
    for (const message of messages.filter(({ role }) => role === "assistant")) {
      const said = text(message);
      if (!words(100).startsWith(said)) this.wrong ??= `a tab shows ${JSON.stringify(lines(messages))}`;
      if (said.length > (this.longest.get(message.id) ?? "").length) this.longest.set(message.id, said);
    }
  }

  /** Fails if what is stored is not what was shown, or is not a conversation in which each question is answered once. */
  judge(stored) {
    assert.equal(this.wrong, undefined);
    const said = new Map(stored.map((message) => [message.id, text(message)]));
    assert.equal(said.size, stored.length, "each id is there once");
    for (const [id, shown] of this.longest) assert(said.get(id)?.startsWith(shown), `${id} was shown as ${shown} and is stored as ${said.get(id)}`);
    const questions = stored.filter(({ role }) => role === "user").map(text);
    assert.equal(new Set(questions).size, questions.length, "each question is there once");
    for (const [at, message] of stored.entries()) {
      if (message.role !== "assistant") continue;
      assert.equal(stored[at - 1]?.role, "user", `an answer stands behind its question: ${JSON.stringify(lines(stored), null, 1)}`);
      const whole = wholeOf(text(stored[at - 1]));
      if (message.metadata?.forever?.outcome === "aborted") assert(whole.startsWith(text(message)));
      else assert.equal(text(message), whole);
    }
  }
}

/** A tab with `useAgentChat`. */
class AgentTab {
  static async open(chat, watch) {
    const tab = new AgentTab();
    for (;;) {
      let failed = false;
      const onUncaughtError = () => (failed = true);
      tab.tab = new Tab(chat.server.host, chat.name, { onRender: (messages) => watch.see(messages), onUncaughtError, hook: await ownHook() });
      await until("the hook", () => failed || tab.tab.chat !== undefined);
      if (!failed) return tab;
      // As a person who loads a page again whose server is away.
      tab.close();
      await sleep(20);
    }
  }
  get ready() {
    return this.tab.ready;
  }
  get state() {
    const { status, isServerStreaming, isRecovering } = this.tab.chat;
    return { status, isServerStreaming, isRecovering };
  }
  get lines() {
    return this.tab.lines;
  }
  say(question, body) {
    this.tab.say(question, body);
  }
  stop() {
    return this.tab.chat.stop();
  }
  close() {
    this.tab.close();
  }
  /** The hook is told of everything. */
  async catchUp() {
    return this;
  }
}

/** A tab with `useChat` alone. After an error it comes again: with its question if it has no answer yet, and otherwise for the rest. */
class HttpTab {
  static async open(chat, watch) {
    const tab = new HttpTab();
    tab.open = () => HttpTab.open(chat, watch);
    for (;;) {
      try {
        tab.page = await Page.load(chat.server.host, chat.name, { onRender: (messages) => watch.see(messages) });
        break;
      } catch {
        // As above.
        await sleep(20);
      }
    }
    tab.again = setInterval(() => {
      const { chat } = tab.page;
      if (chat.status !== "error") return;
      if (chat.messages.at(-1)?.role === "user") chat.sendMessage(undefined, { body: tab.body });
      else chat.resumeStream();
    }, 50);
    return tab;
  }
  get ready() {
    return this.page.ready;
  }
  get state() {
    return { status: this.page.chat.status };
  }
  get lines() {
    return this.page.lines;
  }
  say(question, body) {
    this.body = body;
    this.page.say(question, body);
  }
  async stop() {
    await this.page.cancel().catch(() => {});
  }
  close() {
    clearInterval(this.again);
    this.page.close();
  }
  /** The hook is told of its own questions only, so the page is loaded again. */
  async catchUp() {
    this.close();
    return this.open();
  }
}

/** Three tabs of a chat, through some rounds. */
class Chat {
  constructor(on, name, kinds, next) {
    Object.assign(this, { server: on.server, name, kinds, next, watch: new Watch(), tabs: [], asked: 0 });
  }
  async open(at) {
    this.tabs[at] = await this.kinds[at].open(this, this.watch);
  }
  close(at) {
    const tab = this.tabs[at];
    this.tabs[at] = undefined;
    tab?.close();
  }

  /** One action of a random tab. */
  async act() {
    const at = this.next(TABS);
    const tab = this.tabs[at];
    const action = this.next(10);
    // It is just being opened.
    if (!tab) return;
    if (action < 5) {
      if (!tab.ready) return;
      this.asked += 1;
      const n = 3 + this.next(25);
      const question = `${this.asked}: ${n} words`;
      detail(`tab ${at} asks ${question}`);
      tab.say(question, { n, delay: 2 + this.next(25) });
    } else if (action < 7) {
      if (tab.ready) return;
      detail(`tab ${at} stops`);
      await tab.stop();
    } else {
      const away = action < 9 ? 0 : this.next(300);
      detail(`tab ${at} is ${away ? "closed" : "loaded again"}`);
      this.close(at);
      await sleep(away);
      await this.open(at);
    }
  }

  /** Random actions, and a kill among them. */
  async round() {
    const killed = async (moment, away) => {
      await sleep(moment);
      detail("kill");
      await this.server.kill();
      await sleep(away);
      await this.server.again();
    };
    const acted = async (moment) => {
      await sleep(moment);
      await this.act();
    };
    const moments = Array.from({ length: 3 + this.next(6) }, () => this.next(ACTIONS_END));
    await Promise.all([killed(this.next(KILL_BEFORE), this.next(150)), ...moments.map(acted)]);
  }

  /** Until nothing is under way and every tab shows what is stored. */
  async settle() {
    let stored = [];
    const seen = () => ({ stored: lines(stored), tabs: this.tabs.map((tab) => [tab.state, tab.lines]) });
    const isOver = async () => this.tabs.every((tab) => tab.ready) && (await this.isIdle());
    for (;;) {
      await until("the turns are over", isOver, seen);
      stored = await this.server.messages(this.name);
      this.tabs = await Promise.all(this.tabs.map((tab) => tab.catchUp()));
      // A question of a page that has been closed may have been under way to the server, and one that was asked a moment ago
      // is not shown as asked yet: what is loaded before its answer is there does not have it.
      const isQuiet = async () => (await isOver()) && lines(await this.server.messages(this.name)).join("|") === lines(stored).join("|");
      if (!(await isQuiet())) continue;
      const isSame = async () => this.tabs.every((tab) => tab.ready && tab.lines.join("|") === lines(stored).join("|"));
      let quiet = true;
      await until("all tabs show what is stored", async () => !(quiet = await isQuiet()) || (await isSame()), seen);
      if (quiet) break;
    }
    this.watch.judge(stored);
    return stored;
  }

  /** Whether nothing is under way, and nothing waits. */
  async isIdle() {
    const letGo = new AbortController();
    const response = await fetch(`http://${this.server.host}/agents/chat-agent/${this.name}/x/stream`, { signal: letGo.signal });
    letGo.abort();
    return response.status === 204;
  }
}

/** A case with tabs of these kinds. */
const kills = (kinds) => async (on) => {
  const next = dice();
  const begun = Date.now();
  const all = { rounds: 0, asked: 0, stored: 0, whole: 0, stopped: 0 };
  while (all.rounds < ROUNDS) {
    const chat = new Chat(on, `${on.name}-${all.rounds}`, kinds, next);
    on.after(() => chat.tabs.forEach((tab) => tab?.close()));
    for (let at = 0; at < TABS; at += 1) await chat.open(at);
    await until("the tabs are ready", () => chat.tabs.every((tab) => tab.ready));
    let stored = [];
    for (let round = 0; round < ROUNDS_OF_A_CHAT && all.rounds < ROUNDS; round += 1) {
      detail(`round ${all.rounds} of ${chat.name}`);
      await chat.round();
      stored = await chat.settle();
      all.rounds += 1;
    }
    // As the database has it, without a process that remembers.
    await on.server.restart();
    assert.deepEqual(await on.server.messages(chat.name), stored);
    for (let at = 0; at < TABS; at += 1) chat.close(at);
    const answers = stored.filter(({ role }) => role === "assistant");
    const stopped = answers.filter((message) => message.metadata?.forever?.outcome === "aborted");
    all.asked += chat.asked;
    all.stored += stored.length - answers.length;
    all.whole += answers.length - stopped.length;
    all.stopped += stopped.length;
  }
  console.log(`kills=${all.rounds} tabs=${TABS} asked=${all.asked} stored=${all.stored} whole_answers=${all.whole} stopped_answers=${all.stopped} seconds=${Math.round((Date.now() - begun) / 1000)}`);
};

await run({
  "random kills under three tabs with useAgentChat": kills([AgentTab, AgentTab, AgentTab]),
  "random kills under three tabs with useChat": kills([HttpTab, HttpTab, HttpTab]),
  "random kills under two tabs with useAgentChat and one with useChat": kills([AgentTab, AgentTab, HttpTab]),
});
