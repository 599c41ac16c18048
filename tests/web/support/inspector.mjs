// The company of `examples/inspect.rs`, and a browser's page of its inspector.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";
import { until } from "./until.mjs";

const program = process.env.INSPECT ?? join(import.meta.dirname, "../../../target/debug/examples/inspect");
export const widths = [
  { width: 1280, height: 860 },
  { width: 390, height: 844 },
];

/** The company, opened anew for each case. */
export async function company() {
  const folder = mkdtempSync(join(tmpdir(), "forever-inspect-"));
  const child = spawn(program, ["0", join(folder, "company.db")], { stdio: ["ignore", "pipe", "inherit"] });
  const kill = () => child.kill("SIGKILL");
  process.on("exit", kill);
  const address = await new Promise((resolve, reject) => {
    const lines = createInterface({ input: child.stdout });
    lines.once("line", (line) => resolve(line.replace("inspector: ", "")));
    child.once("exit", (code) => reject(new Error(`the example ended with ${code}`)));
  });
  const api = async (path) => (await fetch(`${address}api/${path}`)).json();
  // By key or id.
  const find = async (name) => (await api(`fibers?key=${name}`)).fibers[0] ?? (await api(`fibers/${name}`)).fiber?.status;
  await until("the seeded faults", async () => {
    const { in_doubt, troubles } = await api("overview");
    const of = (...kinds) => troubles.filter(({ kind }) => kinds.includes(kind)).length;
    return in_doubt.length === 1 && of("retrying") === 1 && of("failed", "parked", "interrupted") === 6 && (await find("order-1044"))?.state === "waiting";
  });
  const end = async () => {
    process.off("exit", kill);
    child.removeAllListeners("exit");
    const gone = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await gone;
    rmSync(folder, { recursive: true, force: true });
  };
  return { address, folder, api, find, end };
}

export const state = async (company, key, wanted) => until(`${key} is ${wanted}`, async () => (await company.find(key))?.state === wanted);

/** Opens a view, and keeps what the page complains of. */
export async function open(browser, company, hash, options = {}) {
  const context = await browser.newContext({ viewport: widths[0], ...options });
  const page = await context.newPage();
  page.complaints = [];
  page.on("pageerror", (error) => page.complaints.push(error.message));
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && page.complaints.push(message.text()));
  await page.goto(`${company.address}${hash}`);
  await page.locator("main h1").waitFor();
  return page;
}

export const dialog = (page) => page.locator("dialog");
export const button = (scope, name) => scope.getByRole("button", { name, exact: true });

export const launch = () => chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: ["--no-sandbox", "--disable-gpu"] });

/** Performs the cases whose sentences have a part in them, each with a company of its own; gives whether all passed. */
export async function perform(browser, cases, part = "") {
  let failed = 0;
  for (const [sentence, of] of Object.entries(cases)) {
    if (!sentence.includes(part)) continue;
    const begun = Date.now();
    const shop = await company();
    let why;
    await of(browser, shop).catch((error) => (why = error));
    for (const context of browser.contexts()) await context.close();
    await shop.end();
    if (why) failed += 1;
    console.log(`${why ? "FAILED" : "ok"} ${sentence} (${((Date.now() - begun) / 1000).toFixed(1)} s)${why ? `\n${why.stack}` : ""}`);
  }
  return failed === 0;
}
