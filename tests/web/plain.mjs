// The plain page of the example, in a browser: what a person without npm sees.
//
//   npm ci && node plain.mjs [folder for screenshots]
import assert from "node:assert/strict";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { Server } from "./server.mjs";

const pictures = process.argv[2];
const flags = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
const browser = await chromium.launchPersistentContext(mkdtempSync(join(tmpdir(), "forever-browser-")), { executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: flags });
const server = await Server.start();
const words = (n) => Array.from({ length: n }, (_, at) => `w${at} `).join("");
try {
  const [wide, narrow] = [await browser.newPage(), await browser.newPage()];
  await narrow.setViewportSize({ width: 360, height: 640 });
  for (const page of [wide, narrow]) await page.goto(`http://${server.host}/`);
  await wide.getByLabel("Message").fill("Tell me something long.");
  await wide.getByRole("button", { name: "Send" }).click();
  await narrow.getByText("w3 ").waitFor();
  if (pictures) await narrow.screenshot({ path: join(pictures, "narrow.png") });
  await server.kill();
  await wide.getByText("Not connected").waitFor();
  if (pictures) await wide.screenshot({ path: join(pictures, "gone.png") });
  Object.assign(server, await server.again());
  await wide.getByText("w8 ").waitFor();
  if (pictures) await wide.screenshot({ path: join(pictures, "again.png") });
  for (const page of [wide, narrow]) {
    await page.getByText(words(30).trim()).waitFor();
    assert.deepEqual(await page.locator(".message").allTextContents(), ["Tell me something long.", words(30)]);
  }
  if (pictures) await wide.screenshot({ path: join(pictures, "whole.png") });
  console.log("ok");
} finally {
  await browser.close();
  await server.kill();
}
