// How long the Overview takes with many fibers, in Chromium: a thousand retrying and a thousand in doubt among the finished ones.
//
//   npm ci && node many.mjs
//
// Prints one `key=value` a line, and fails beyond the bounds. Builds the server optimised, as users do.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { launch } from "./support/inspector.mjs";
import { until } from "./support/until.mjs";

/** Fibers, the line, and the bounds in milliseconds: of the page, and of a request. */
const cases = [
  { fibers: 100_000, line: { latency: 200, downloadThroughput: 125_000, uploadThroughput: 125_000 }, shown: 3000 },
  { fibers: 1_000_000, shown: 1000, request: 200 },
];
const views = ["overview", "fibers", "fibers?retrying=true", "fibers?state=failed", "ops", "functions", "agents", "chats", "schedules"];

async function serve(fibers) {
  const bench = ["bench", "--quiet", "-p", "benches", "--bench", "inspect", "--", "--serve", "--fibers", fibers];
  const child = spawn("cargo", bench, { cwd: join(import.meta.dirname, "../.."), stdio: ["pipe", "pipe", "inherit"] });
  const address = await new Promise((resolve, reject) => {
    createInterface({ input: child.stdout }).on("line", (line) => line.startsWith("inspector=") && resolve(line.slice(10)));
    child.once("exit", (code) => reject(new Error(`the server ended with ${code}`)));
  });
  return { address, end: () => child.stdin.end() };
}

/** Opens the Overview as one who has never seen it, on a phone's width, until it says what is wrong. */
async function shown(browser, address, line) {
  const context = await browser.newContext({ viewport: { width: 390, height: 844 } });
  const page = await context.newPage();
  if (line) await (await context.newCDPSession(page)).send("Network.emulateNetworkConditions", { offline: false, ...line });
  const begun = performance.now();
  await page.goto(`${address}#/`, { waitUntil: "commit" });
  await page.locator(".reasons li").first().waitFor();
  const ms = performance.now() - begun;
  assert.match(await page.locator("main").textContent(), /1,000 retrying/);
  let asked = 0;
  page.on("request", (request) => (asked += request.url().endsWith("/api/overview")));
  await until("it is asked for again", () => asked > 0);
  await context.close();
  return ms;
}

/** The longest of the requests of all views, in milliseconds, of a server that has counted nothing yet. */
async function longest(address) {
  let most = 0;
  for (const view of views) {
    const begun = performance.now();
    const answer = await fetch(`${address}api/${view}`);
    assert.equal(answer.status, 200, await answer.text());
    most = Math.max(most, performance.now() - begun);
  }
  return most;
}

/** What is measured of a server of its own. */
async function measured(fibers, measure) {
  const server = await serve(fibers);
  const ms = await measure(server.address);
  server.end();
  return ms;
}

const browser = await launch();
for (const { fibers, line, ...most } of cases) {
  const ms = { shown: await measured(fibers, (address) => shown(browser, address, line)), request: await measured(fibers, longest) };
  console.log(`fibers=${fibers}\nshown_ms=${Math.round(ms.shown)}\nlongest_request_ms=${Math.round(ms.request)}`);
  for (const [what, bound] of Object.entries(most)) assert.ok(ms[what] <= bound, `${what}: ${ms[what]} ms, and ${bound} are allowed`);
}
await browser.close();
