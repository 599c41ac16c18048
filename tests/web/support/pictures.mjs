// How the page of the example looks, for people to look at.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { Browser } from "./browser.mjs";
import { Server } from "./server.mjs";

const long = `https://example.com/${"a-long-word-without-a-break".repeat(6)} and then words, as many as a person may write before they think of an end. `.repeat(2);

/** Each look is a window: its size, its colours, and how many dots make up a point. */
const looks = {
  wide: { viewport: { width: 1000, height: 700 } },
  dark: { viewport: { width: 1000, height: 700 }, colorScheme: "dark" },
  narrow: { viewport: { width: 360, height: 640 }, isMobile: true, hasTouch: true },
};

export async function take(folder) {
  mkdirSync(folder, { recursive: true });
  for (const [look, options] of Object.entries(looks)) await tour(folder, look, options);
  await readme(folder);
  process.exit(0);
}

async function tour(folder, look, options) {
  const server = await Server.start();
  const browser = await Browser.start(options);
  const page = await browser.open(`http://${server.host}/?delay=300`);
  const picture = (what) => page.screenshot({ path: join(folder, `${look}-${what}.png`) });
  const ask = async (words, button) => {
    await page.getByLabel("Message").fill(words);
    await page.getByRole("button", { name: button, exact: true }).click();
  };
  const over = () => page.getByRole("button", { name: "Stop", disabled: true }).waitFor();
  await picture("empty");
  await ask("Where am I?", "Ask the page");
  await page.getByText("language").waitFor();
  await over();
  await ask("Pay, please.", "Ask me");
  await page.getByRole("button", { name: "Yes" }).waitFor();
  await over();
  await picture("asked");
  await page.getByRole("button", { name: "Yes" }).click();
  await page.getByText("paid").waitFor();
  await over();
  await ask(long, "Fail");
  await page.getByRole("status").getByText("provider said no").waitFor();
  await picture("error");
  await ask("Tell me something long.", "Send");
  await page.getByText("w9 ").last().waitFor();
  await server.kill();
  await page.getByText("Not connected").waitFor();
  await picture("gone");
  await server.again();
  await page.getByText("the answer goes on").waitFor();
  await picture("again");
  await browser.end();
  await server.end();
}

/** The picture of the README: the server was gone in the middle of an answer, which goes on. */
async function readme(folder) {
  const server = await Server.start();
  const browser = await Browser.start({ viewport: { width: 440, height: 320 }, deviceScaleFactor: 2 });
  const page = await browser.open(`http://${server.host}/?delay=300`);
  await page.getByLabel("Message").fill("Tell me something long.");
  await page.getByRole("button", { name: "Send" }).click();
  await page.getByText("w11 ").waitFor();
  await server.kill();
  await page.getByText("Not connected").waitFor();
  await server.again();
  await page.getByText("the answer goes on").waitFor();
  await page.screenshot({ path: join(folder, "chat.png") });
  await browser.end();
  await server.end();
}
