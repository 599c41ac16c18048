// A server that is away, under a page with the recipe of the guide: `useChat` and `useAgentChat`, in jsdom and in Chromium.
//
//   npm ci && node away.mjs [part of a case's name]
//   node away.mjs --browser     in Chromium, where a page is also loaded while the server is away: `scripts/web` builds it
//   node seven.mjs away.mjs     the same with version 7 of the `ai` package
//
// It is away for as long as the test says. No word is lost or doubled, every approval is stored, and every page comes back by itself.
import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { inTime, run } from "./support/cases.mjs";
import { dice, lines, text, until as wait, words } from "./support/until.mjs";

const inBrowser = process.argv[2] === "--browser";
if (inBrowser) process.argv.splice(2, 1);
const { open } = await import(inBrowser ? "./support/away-browser.mjs" : "./support/away-jsdom.mjs");

/** For how long the server is away, in seconds, and how often it is killed in one case. */
const AWAY = (process.env.AWAY ?? (inBrowser ? "0.1,1.5,5,30" : "0.1")).split(",").map(Number);
const KILLS = Number(process.env.KILLS ?? (inBrowser ? 50 : 3));
const N = 30;

const total = { pages: 0, kills: 0, questions: 0, approvals: 0 };

const until = async (what, page, so) => {
  let seen;
  await wait(what, async () => so((seen = await page.seen())), () => seen);
};
const ready = (page) => until("ready", page, (seen) => seen.ready);
const begun = (page, word = "w3 ") => until("has begun", page, (seen) => seen.last.includes(word));

/** The page shows this in the end, and has never shown anything else; so it is stored. */
async function settled(on, page, expected, { paid } = {}) {
  await until("the whole conversation", page, (seen) => seen.ready && seen.lines.join("|") === expected.join("|") && (!paid || seen.pay === "output-available"));
  assert.deepEqual((await page.seen()).wrong, []);
  const stored = await on.server.messages(on.name);
  assert.deepEqual(lines(stored), expected);
  assert.equal(new Set(stored.map((message) => message.id)).size, stored.length);
  const calls = stored.flatMap((message) => message.parts).filter((part) => part.type === "tool-pay");
  if (paid) assert.deepEqual(calls.map((part) => [part.state, part.approval.approved]), [["output-available", true]]);
  Object.assign(total, { pages: total.pages + 1, questions: total.questions + stored.filter(({ role }) => role === "user").length, approvals: total.approvals + calls.length });
}

/** Kills the server, and starts it again after what is done and the time. */
async function absent(on, seconds, meanwhile = async () => {}) {
  await on.server.kill();
  total.kills += 1;
  const isOver = sleep(seconds * 1000);
  await meanwhile();
  await isOver;
  await on.server.again();
}

/** Asks for a payment, for which a person is asked. */
async function askToPay(page) {
  await page.say("pay", { n: 2, delay: 5, mode: "approval" });
  await until("asks", page, (seen) => seen.pay === "approval-requested" && seen.ready);
}
async function asking(on, hook) {
  const page = await open(on, hook);
  await ready(page);
  await askToPay(page);
  return page;
}
const paid = ["user: pay", `assistant: ${words(2)}${words(2)}`];
const answered = ["user: hi", `assistant: ${words(N)}`];

const scenarios = {
  async "while the answer streams"(on, hook, seconds) {
    const page = await open(on, hook);
    await ready(page);
    await page.say("hi", { n: N, delay: 40 * on.slow });
    await begun(page);
    await absent(on, seconds, async () => inTime((await page.seen()).last !== answered[1]));
    await settled(on, page, answered);
  },

  async "while a question is sent"(on, hook, seconds) {
    const page = await open(on, hook);
    await ready(page);
    await absent(on, seconds, () => page.say("hi", { n: N, delay: 5 }));
    await settled(on, page, answered);
  },

  async "from the moment in which a question is sent"(on, hook, seconds) {
    const page = await open(on, hook);
    await ready(page);
    // Nothing of what arrives is read any more.
    on.server.child.kill("SIGSTOP");
    await page.sends(() => page.say("hi", { n: N, delay: 5 }));
    await absent(on, seconds);
    await settled(on, page, answered);
  },

  async "while an approval is given"(on, hook, seconds) {
    const page = await asking(on, hook);
    await absent(on, seconds, () => page.approve("ap1", true));
    await settled(on, page, paid, { paid: true });
  },

  async "from the moment in which an approval is given"(on, hook, seconds) {
    const page = await asking(on, hook);
    on.server.child.kill("SIGSTOP");
    await page.sends(() => page.approve("ap1", true));
    await absent(on, seconds);
    await settled(on, page, paid, { paid: true });
  },

  async "while the answer to an approval streams"(on, hook, seconds) {
    const page = await open(on, hook);
    await ready(page);
    await page.say("pay", { n: N, delay: 40 * on.slow, mode: "approval" });
    await until("asks", page, (seen) => seen.pay === "approval-requested" && seen.ready);
    await page.approve("ap1", true);
    await begun(page, `${words(N)}${words(3)}`);
    const all = ["user: pay", `assistant: ${words(N)}${words(N)}`];
    await absent(on, seconds, async () => inTime((await page.seen()).last !== all[1]));
    await settled(on, page, all, { paid: true });
  },

  async "and a tool of the page answers meanwhile"(on, hook, seconds) {
    const page = await open(on, hook);
    await ready(page);
    on.server.child.kill("SIGSTOP");
    await page.sends(() => page.say("where am I?", { n: 1, mode: "tool" }));
    await absent(on, seconds);
    await settled(on, page, ["user: where am I?", "assistant: w0 w0 "]);
  },
};

/** These need a browser: what a page that is gone has begun would go on without one. */
const reloads = {
  async "while a page that shows an answer is loaded again"(on, hook, seconds) {
    const page = await open(on, hook);
    await ready(page);
    await page.say("hi", { n: N, delay: 40 * on.slow });
    await begun(page);
    await absent(on, seconds, async () => {
      inTime((await page.seen()).last !== answered[1]);
      await page.reload();
    });
    await settled(on, page, answered);
  },

  async "while a question is sent and the page is loaded again"(on, hook, seconds) {
    const page = await open(on, hook);
    await ready(page);
    await absent(on, seconds, async () => {
      await page.say("hi", { n: N, delay: 5 });
      await page.reload();
    });
    await settled(on, page, answered);
  },

  async "while an approval is given and the page is loaded again"(on, hook, seconds) {
    const page = await asking(on, hook);
    await absent(on, seconds, async () => {
      await page.approve("ap1", true);
      await page.reload();
    });
    await settled(on, page, paid, { paid: true });
  },

  async "and what stands before it answers 503 meanwhile"(on, hook, seconds) {
    const page = await open(on, hook);
    page.front.says503 = true;
    await ready(page);
    await page.say("hi", { n: N, delay: 40 * on.slow });
    await begun(page);
    await absent(on, seconds, () => page.reload());
    await until("whole", page, (seen) => seen.last === answered[1] && seen.ready);
    await askToPay(page);
    await absent(on, seconds, () => page.approve("ap1", true));
    await settled(on, page, [...answered, ...paid], { paid: true });
    assert(page.front.refused > 0);
  },
};

/** As many kills as there shall be, at random moments, while a person asks one question after the other. */
const kills = {
  async "again and again"(on, hook) {
    const next = dice();
    const page = await open(on, hook);
    const expected = [];
    await ready(page);
    for (let killed = 0; killed < KILLS; ) {
      const [question, n] = [`question ${expected.length / 2}`, 10 + next(30)];
      expected.push(`user: ${question}`, `assistant: ${words(n)}`);
      await page.say(question, { n, delay: 10 + next(20) });
      for (let more = 1 + next(4); more > 0 && killed < KILLS; more -= 1, killed += 1) {
        await sleep(next(400));
        const isLoadedAgain = inBrowser && next(4) === 0;
        await absent(on, next(600) / 1000, () => isLoadedAgain && page.reload());
      }
      await settled(on, page, expected);
    }
  },
};

const cases = {};
for (const hook of ["chat", "agent"]) {
  const name = { chat: "useChat", agent: "useAgentChat" }[hook];
  for (const [sentence, scenario] of Object.entries({ ...scenarios, ...(inBrowser ? reloads : {}) })) {
    for (const seconds of AWAY) cases[`${name}: the server is away ${sentence}, for ${seconds} s`] = (on) => scenario(on, hook, seconds);
  }
  for (const [sentence, scenario] of Object.entries(kills)) cases[`${name}: the server is killed ${sentence}, ${KILLS} times`] = (on) => scenario(on, hook);
}
process.on("exit", () => console.log(Object.entries(total).map(([what, count]) => `${what}=${count}`).join(" ")));
await run(cases);
