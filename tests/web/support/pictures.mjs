// How the page of the example looks, for people to look at.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { Browser } from "./browser.mjs";
import { Server } from "./server.mjs";

const long = `https://example.com/${"a-long-word-without-a-break".repeat(6)} and then words, as many as a person may write before they think of an end. `.repeat(2);
const arabic = "ما الذي يحدث إذا أوقفت الخادم الآن؟ kill -9 في منتصف الجواب.";

/** Each look is a window: its size, its colours, and how many dots make up a point. */
const looks = {
  wide: { viewport: { width: 1280, height: 800 } },
  dark: { viewport: { width: 1280, height: 800 }, colorScheme: "dark" },
  narrow: { viewport: { width: 390, height: 780 }, isMobile: true, hasTouch: true },
  "narrow-dark": { viewport: { width: 390, height: 780 }, isMobile: true, hasTouch: true, colorScheme: "dark" },
};

export async function take(folder) {
  mkdirSync(folder, { recursive: true });
  for (const [look, options] of Object.entries(looks)) await tour(folder, look, options);
  await many(folder);
  process.exit(0);
}

const stop = (page) => page.getByRole("button", { name: "Stop" });
const over = (page) => stop(page).waitFor({ state: "detached" });

async function ask(page, words) {
  await page.getByLabel("Message").fill(words);
  await page.getByRole("button", { name: "Send" }).click();
  await stop(page).waitFor();
}

/** Kills the server in the middle of an answer, and starts it again a while later. */
async function killed(server, page, after, pictures = async () => {}) {
  await page.getByText(after).waitFor();
  await server.kill();
  await page.getByText("Not connected").waitFor();
  await sleep(2000);
  await pictures();
  await server.again();
  await page.getByText("Not connected").waitFor({ state: "detached" });
}

async function tour(folder, look, options) {
  const server = await Server.start("showcase");
  const browser = await Browser.start(options);
  const page = await browser.open(`http://${server.host}/?delay=20`);
  const picture = (what) => page.screenshot({ path: join(folder, `${look}-${what}.png`) });
  await page.getByText(/kill -9 \d/).waitFor();
  await picture("empty");
  await page.getByRole("button", { name: "What happens if" }).click();
  await page.getByText("Try it: kill").waitFor();
  await picture("begun");
  await killed(server, page, "the new process", () => picture("gone"));
  await page.locator(".mark").waitFor();
  await picture("again");
  await over(page);
  await ask(page, "Please pay Ada 12 euros.");
  await page.getByRole("button", { name: "Approve" }).waitFor();
  await over(page);
  await picture("asked");
  await page.getByRole("button", { name: "Approve" }).click();
  await page.getByText("Done, and only once").waitFor();
  await over(page);
  await picture("paid");
  await ask(page, "Show me the code, please.");
  await killed(server, page, "for question in");
  await over(page);
  await picture("code");
  await ask(page, arabic);
  await over(page);
  await picture("arabic");
  await ask(page, long);
  await over(page);
  await picture("long");
  await browser.end();
  await server.end();
}

/** Messages with Markdown. */
export const conversation = (length) =>
  Array.from({ length }, (_, at) => ({
    id: `m${at}`,
    role: at % 2 ? "assistant" : "user",
    parts: [{ type: "text", text: at % 2 ? `Answer **${at}**\n\n- one\n- \`two\`\n\n\`\`\`js\nconst x = ${at};\n\`\`\`` : `Question ${at}` }],
  }));

/** A thousand messages, as they are when the page is opened. */
async function many(folder) {
  const server = await Server.start("words");
  const browser = await Browser.start(looks.wide);
  await browser.stored(conversation(1000));
  const begun = Date.now();
  const page = await browser.open(`http://${server.host}/?chat=many&n=40&delay=20`);
  await page.getByText("Answer 999").waitFor();
  console.log(`1 000 messages after ${Date.now() - begun} ms`);
  await page.screenshot({ path: join(folder, "many.png") });
  const asked = Date.now();
  await ask(page, "One more.");
  await page.getByText("w39").waitFor();
  console.log(`40 words of 20 ms after ${Date.now() - asked} ms`);
  await page.screenshot({ path: join(folder, "many-more.png") });
  await browser.end();
  await server.end();
}
