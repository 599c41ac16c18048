// The React page of the example, built, in a browser: what a person sees.
//
//   (cd ../../examples/chat/web && npm ci && npm run build) && npm ci && node page.mjs [folder for screenshots]
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { Server } from "./server.mjs";

const pictures = process.argv[2];
const flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const browser = await chromium.launchPersistentContext(mkdtempSync(join(tmpdir(), "forever-browser-")), { executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: flags });
const server = await Server.start();
const words = (n) => Array.from({ length: n }, (_, at) => `w${at} `).join("").trim();
const picture = async (page, name) => pictures && page.screenshot({ path: join(pictures, `${name}.png`) });
try {
  const [wide, narrow] = [await browser.newPage(), await browser.newPage()];
  await narrow.setViewportSize({ width: 360, height: 640 });
  for (const page of [wide, narrow]) {
    page.on("pageerror", (error) => console.log("page error", error.message));
    await page.goto(`http://${server.host}/`);
    await page.getByLabel("Message").waitFor();
  }
  await wide.getByLabel("Message").fill("Tell me something long.");
  await wide.getByRole("button", { name: "Send" }).click();
  await narrow.getByText("w5 ").waitFor();
  await picture(narrow, "react-narrow");
  await server.kill();
  await wide.getByText("Not connected").waitFor();
  await picture(wide, "react-gone");
  Object.assign(server, await server.again());
  await wide.getByText("the answer goes on").waitFor();
  await picture(wide, "react-again");
  for (const page of [wide, narrow]) await page.getByText(words(40)).waitFor();
  await wide.getByRole("button", { name: "Fail" }).click();
  await narrow.getByText("provider said no").first().waitFor();
  await wide.getByRole("button", { name: "Ask me" }).click();
  await narrow.getByRole("button", { name: "Yes" }).click();
  await wide.getByText('{"paid":true}').waitFor();
  await picture(wide, "react-approved");
  await picture(narrow, "react-approved-narrow");
  console.log("ok");
} finally {
  await browser.close();
  await server.kill();
}
