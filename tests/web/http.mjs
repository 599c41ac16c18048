// `useChat` of the `ai` packages with a plain `DefaultChatTransport`, against the example server.
//
//   npm ci && node http.mjs [part of a case's name]
//   node seven.mjs http.mjs     the same with version 7 of the `ai` package
import assert from "node:assert/strict";
import { inTime, run } from "./support/cases.mjs";
import { Page, here } from "./support/page.mjs";
import { lines, until as wait, words } from "./support/until.mjs";

/** A page that resumes what is under way. */
async function load(on) {
  const page = await Page.load(on.server.host, on.name);
  on.after(() => page.close());
  return page;
}

/** A page of a chat in which nothing is under way. */
async function open(on) {
  const page = await load(on);
  await until("ready", page, () => page.ready);
  return page;
}

const until = (what, page, so) => wait(what, so, () => [page.chat.status, page.chat.error?.message, page.lines]);
const begun = (page) => until("has begun", page, () => page.last.includes("w3 "));

run({
  async "an answer streams, and is stored as it was shown"(on) {
    const page = await open(on);
    page.say("hi", { n: 10, delay: 30 * on.slow });
    await until("streams", page, () => page.last.includes("w1 "));
    inTime(page.last !== `assistant: ${words(10)}`);
    await until("whole", page, () => page.last === `assistant: ${words(10)}` && page.ready);
    const stored = await on.server.messages(on.name);
    assert.deepEqual(lines(stored), page.lines);
    assert.deepEqual(stored.map((message) => message.id), page.chat.messages.map((message) => message.id));
    page.say("and?", { n: 2 });
    await until("the second answer", page, () => page.last === `assistant: ${words(2)}` && page.ready);
    assert.deepEqual(lines(await on.server.messages(on.name)), page.lines);
  },

  async "a reload in the middle of an answer resumes it"(on) {
    const first = await open(on);
    first.say("hi", { n: 20, delay: 50 * on.slow });
    await begun(first);
    first.close();
    inTime((await on.server.messages(on.name)).length === 1);
    const page = await load(on);
    await until("whole", page, () => page.last === `assistant: ${words(20)}` && page.ready);
    assert.deepEqual(page.lines, ["user: hi", `assistant: ${words(20)}`]);
    assert.equal(page.chat.messages[1].id, (await on.server.messages(on.name))[1].id);
  },

  async "an answer whose server was killed is resumed in the same message"(on) {
    const page = await open(on);
    page.say("hi", { n: 20, delay: 50 * on.slow });
    await begun(page);
    const { id } = page.chat.messages[1];
    await on.server.kill();
    await until("is noticed", page, () => page.chat.status === "error");
    inTime(page.last !== `assistant: ${words(20)}`);
    await on.server.again();
    page.chat.resumeStream();
    await until("whole", page, () => page.last === `assistant: ${words(20)}` && page.ready);
    assert.deepEqual([page.lines.length, page.chat.messages[1].id], [2, id]);
    assert.deepEqual(lines(await on.server.messages(on.name)), page.lines);
  },

  async "stop alone lets go of the answer, which goes on, and the DELETE cancels it"(on) {
    const page = await open(on);
    page.say("hi", { n: 20, delay: 50 * on.slow });
    await begun(page);
    await page.chat.stop();
    inTime((await on.server.messages(on.name)).length === 1);
    page.chat.resumeStream();
    await until("whole", page, () => page.last === `assistant: ${words(20)}` && page.ready);
    page.say("more", { n: 100, delay: 50 * on.slow });
    await until("has begun", page, () => page.lines.length === 4 && page.last.includes("w3 "));
    await page.cancel();
    await until("stored", page, async () => (await on.server.messages(on.name)).length === 4);
    const said = lines(await on.server.messages(on.name))[3];
    inTime(said !== `assistant: ${words(100)}`);
    assert(said.startsWith(page.last), said);
    assert.equal(await fetch(`${page.api}/x/stream`).then((response) => response.status), 204);
  },

  async "an answer is regenerated"(on) {
    const page = await open(on);
    page.say("hi", { n: 2 });
    await until("the first", page, () => page.last === `assistant: ${words(2)}` && page.ready);
    const { id } = page.chat.messages[1];
    page.chat.regenerate({ body: { n: 5 } });
    await until("the second", page, () => page.last === `assistant: ${words(5)}` && page.ready);
    page.chat.regenerate({ messageId: page.chat.messages[1].id, body: { n: 3 } });
    await until("the third", page, () => page.last === `assistant: ${words(3)}` && page.ready);
    assert.notEqual(page.chat.messages[1].id, id);
    assert.deepEqual(lines(await on.server.messages(on.name)), ["user: hi", `assistant: ${words(3)}`]);
  },

  async "a tool that the page answers, and the answer goes on in the same message"(on) {
    const page = await open(on);
    page.say("where am I?", { n: 1, mode: "tool" });
    await until("goes on", page, () => page.last === "assistant: w0 w0 " && page.ready);
    assert.deepEqual([page.state("getLocation"), page.chat.messages.length, page.posts, page.called], ["output-available", 2, 2, 1]);
    const [, stored] = await on.server.messages(on.name);
    assert.deepEqual(stored.parts.find((part) => part.type === "tool-getLocation").output, here);
  },

  async "a call that is approved is carried out, and one that is refused is not"(on) {
    for (const approved of [true, false]) {
      const page = await open({ ...on, name: `${on.name}-${approved}` });
      page.say("pay", { n: 1, mode: "approval" });
      await until("asks", page, () => page.state("pay") === "approval-requested" && page.ready);
      page.chat.addToolApprovalResponse({ id: "ap1", approved });
      await until("goes on", page, () => page.last === "assistant: w0 w0 " && page.ready);
      assert.equal(page.state("pay"), approved ? "output-available" : "approval-responded");
      assert.deepEqual([page.chat.messages.length, page.posts], [2, 2]);
    }
  },

  async "what follows an approval is resumed after a reload, in the same message"(on) {
    const n = 20;
    const first = await open(on);
    first.say("pay", { n, delay: 40 * on.slow, mode: "approval" });
    await until("asks", first, () => first.state("pay") === "approval-requested" && first.ready);
    first.chat.addToolApprovalResponse({ id: "ap1", approved: true });
    await until("goes on", first, () => first.last.includes(`${words(n)}w0 w1 `));
    first.close();
    const page = await load(on);
    await until("is resumed", page, () => page.last.includes(`${words(n)}w0 `));
    inTime(page.last !== `assistant: ${words(n)}${words(n)}`);
    await until("whole", page, () => page.last === `assistant: ${words(n)}${words(n)}` && page.ready);
    assert.deepEqual([page.chat.messages.length, page.state("pay"), page.posts], [2, "output-available", 0]);
  },

  async "an error reaches the page"(on) {
    const page = await open(on);
    for (const [mode, said] of [["error", "provider said no"], ["throw", "boom"]]) {
      page.say(mode, { n: 2, mode });
      await until("the error", page, () => page.chat.status === "error" && page.chat.error.message === said);
    }
    page.chat.regenerate({ body: { n: 3 } });
    await until("again", page, () => page.last === `assistant: ${words(3)}` && page.ready);
  },
});
