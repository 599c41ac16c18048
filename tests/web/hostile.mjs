// Answers that are made to break the page of the example, in Chromium: stored, after a reload, and streamed in small pieces.
//
//   (cd ../../examples/chat/web && npm ci && npm run build) && npm ci && node hostile.mjs [part of a case's name]
import assert from "node:assert/strict";
import { join } from "node:path";
import { Browser } from "./support/browser.mjs";
import { run } from "./support/cases.mjs";
import { Front } from "./support/front.mjs";
import { shapes } from "./support/shapes.mjs";
import { until } from "./support/until.mjs";

const count = (text) => text.split("q").length - 1;
const answer = (text) => ({ id: "a", role: "assistant", parts: [{ type: "text", text }] });
const around = (message) => [{ id: "u", role: "user", parts: [{ type: "text", text: "go on" }] }, message, answer("the next answer")].map((message, at) => ({ ...message, id: `m${at}` }));

async function open(on) {
  const front = await Front.of(on.server, join(import.meta.dirname, "../../examples/chat/web/dist"));
  const browser = await Browser.start();
  on.after(async () => {
    await browser.end();
    front.end();
  });
  return { front, browser, address: `http://${front.host}/?chat=${on.name}` };
}

/** Nothing of a message is missing, what it takes is bounded, and the person can go on. */
async function isShown(page, text) {
  const seen = () =>
    page.evaluate(() => {
      const message = document.querySelector(".assistant");
      return message && { letters: message.textContent.split("q").length - 1, elements: message.querySelectorAll("*").length };
    });
  await until("the whole text", async () => (await seen())?.letters === count(text), () => count(text));
  const { elements } = await seen();
  assert(elements <= 6_000, `${elements} elements`);
  await page.getByLabel("Message").fill("next");
  // It has been painted.
  await page.evaluate(() => new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(painted))));
  return elements;
}

/** Until the message behind it is there. */
const next = (page) => page.waitForFunction(() => document.querySelectorAll(".assistant")[1]?.textContent === "the next answer");

const cases = {};
for (const [name, text] of Object.entries(shapes)) {
  cases[`an answer with ${name} is shown whole, also after a reload`] = async (on) => {
    const { browser, address } = await open(on);
    await browser.stored(around(answer(text)));
    const begun = performance.now();
    const page = await browser.open(address);
    await next(page);
    const elements = await isShown(page, text);
    const shown = performance.now() - begun;
    await page.reload();
    await next(page);
    await isShown(page, text);
    console.log(`characters=${text.length} elements=${elements} shown_ms=${Math.round(shown)}`);
    browser.quiet();
  };
}

Object.assign(cases, {
  async "a message that cannot be rendered leaves the others"(on) {
    const { browser, address } = await open(on);
    await browser.stored(around({ role: "assistant", parts: [{ type: "text", text: "said q" }, { type: "text", text: 5 }] }));
    const page = await browser.open(address);
    await next(page);
    await page.getByText("said q").waitFor();
    await page.getByLabel("Message").fill("next");
  },
});

for (const name of ["8 000 quotes", "600 nested lists", "3 000 columns", "100 000 closed emphases", "50 000 links", "50 000 items", "one line of 10 MB", "code that is not closed"]) {
  cases[`an answer with ${name} that streams in small pieces is shown whole`] = async (on) => {
    const text = shapes[name].slice(0, 4_000_000);
    const { browser, address } = await open(on);
    let ask;
    const asked = new Promise((resolve) => (ask = resolve));
    // In place of the server, which answers with words only.
    await browser.context.routeWebSocket(/\/agents\//, (socket) => {
      const send = (frame) => socket.send(JSON.stringify(frame));
      send({ type: "cf_agent_identity", name: on.name, agent: "chat-agent" });
      socket.onMessage((data) => {
        const frame = JSON.parse(data);
        if (frame.type === "cf_agent_stream_resume_request") send({ type: "cf_agent_stream_resume_none", reason: "idle", probeId: frame.probeId });
        if (frame.type === "rpc") send({ type: "rpc", id: frame.id, success: true, result: {} });
        if (frame.type === "cf_agent_use_chat_request") ask((chunk, done = false) => send({ type: "cf_agent_use_chat_response", id: frame.id, body: chunk ? JSON.stringify(chunk) : "", done }));
      });
    });
    const page = await browser.open(address);
    await page.getByLabel("Message").fill("hi");
    await page.getByRole("button", { name: "Send", exact: true }).click();
    const send = await asked;
    const begun = performance.now();
    send({ type: "start", messageId: "a" });
    send({ type: "text-start", id: "t" });
    const size = Math.max(200, Math.ceil(text.length / 2000));
    for (let at = 0; at < text.length; at += size) {
      send({ type: "text-delta", id: "t", delta: text.slice(at, at + size) });
      // The page answers between the pieces.
      if ((at / size) % 200 === 0) await page.evaluate(() => 0);
    }
    send({ type: "text-end", id: "t" });
    send({ type: "finish" });
    send(undefined, true);
    const elements = await isShown(page, text);
    console.log(`characters=${text.length} pieces=${Math.ceil(text.length / size)} elements=${elements} shown_ms=${Math.round(performance.now() - begun)}`);
    browser.quiet();
  };
}

await run(cases);
