// The recording of the README: a server is killed in the middle of an answer, and the answer goes on.
import { writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { animated } from "./apng.mjs";
import { Browser } from "./browser.mjs";
import { Server } from "./server.mjs";

/** How long a picture of the answer is shown, in ms. */
const FRAME = 220;

/** Below the page a terminal, in which stands what is done to the server. */
const terminal = (line) => {
  const there = document.querySelector("#terminal") ?? document.body.appendChild(document.createElement("pre"));
  there.id = "terminal";
  there.textContent = line;
  there.style = "position:fixed;inset:auto 0 0 0;margin:0;padding:9px 16px;height:38px;z-index:9;background:#11141a;color:#d6f5d6;font:14px/20px monospace;text-align:left";
  document.querySelector("#page").style.paddingBottom = "38px";
  document.querySelector("footer").style.bottom = "38px";
};

export async function record(file) {
  const server = await Server.start("showcase");
  const browser = await Browser.start({ viewport: { width: 600, height: 580 } });
  const page = await browser.open(`http://${server.host}/?delay=60`);
  const frames = [];
  const take = async (ms) => frames.push({ png: await page.screenshot({ animations: "allow", caret: "hide" }), ms });
  /** Pictures of what happens, until it is so. */
  const until = async (so, ms = FRAME) => {
    for (let round = 0; round < 60 && !(await so()); round += 1) {
      await take(ms);
      await sleep(ms);
    }
  };
  const says = (text) => page.getByText(text).first().isVisible();
  const { pid } = server.child;
  await page.evaluate(terminal, "$ cargo run -p examples-http --example chat");
  await page.getByText(`kill -9 ${pid}`).waitFor();
  await take(1400);
  await page.getByRole("button", { name: "What happens if" }).click();
  await page.mouse.move(0, 0);
  await until(() => says("a kill could take"));
  await page.evaluate(terminal, `$ kill -9 ${pid}`);
  await server.kill();
  await page.getByText("Not connected").waitFor();
  await take(1500);
  await sleep(1200);
  await take(1500);
  await page.evaluate(terminal, "$ cargo run -p examples-http --example chat");
  await server.again();
  await page.locator(".mark").waitFor();
  await until(() => says("goes on behind it"), FRAME);
  await take(3500);
  await browser.end();
  await server.end();
  const bytes = animated(frames);
  writeFileSync(file, bytes);
  console.log(`${file}: ${frames.length} pictures, ${Math.round(bytes.length / 1024)} KiB`);
  process.exit(0);
}
