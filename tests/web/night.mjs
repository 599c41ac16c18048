// Ten faults of a night, each found and answered on a phone in at most six clicks and without a typed id.
//
//   cargo build --example night && npm ci && node night.mjs [part of a fault]
//   node night.mjs --pictures FOLDER       how the overview looks that night
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { launch, open, widths } from "./support/inspector.mjs";
import { until } from "./support/until.mjs";

const program = process.env.NIGHT ?? join(import.meta.dirname, "../../target/debug/examples/night");

async function night() {
  const folder = mkdtempSync(join(tmpdir(), "forever-night-"));
  const child = spawn(program, ["0", folder], { stdio: ["ignore", "pipe", "inherit"] });
  const kill = () => child.kill("SIGKILL");
  process.on("exit", kill);
  const address = await new Promise((resolve, reject) => {
    createInterface({ input: child.stdout }).on("line", (line) => line.startsWith("inspector: ") && resolve(line.replace("inspector: ", "")));
    child.once("exit", (code) => reject(new Error(`the example ended with ${code}`)));
  });
  const api = async (path) => (await fetch(`${address}api/${path}`)).json();
  const state = async (key, wanted) => until(`${key} is ${wanted}`, async () => (await api(`fibers?key=${key}`)).fibers[0]?.state === wanted);
  const works = (what) => writeFileSync(join(folder, what), "");
  const end = () => {
    process.off("exit", kill);
    child.removeAllListeners("exit");
    kill();
    rmSync(folder, { recursive: true, force: true });
  };
  return { address, api, state, works, end };
}

/** A person with a phone, who was woken up: each click is counted, and what is typed is a value, never an id. */
class Person {
  constructor(page) {
    Object.assign(this, { page, clicks: 0 });
  }

  async click(locator) {
    await locator.click();
    this.clicks++;
  }

  /** The fault on the overview, by words of it. */
  fault(...words) {
    return words.reduce((found, hasText) => found.filter({ hasText }), this.page.locator(".trouble"));
  }

  async sees(locator, words) {
    await locator.filter({ hasText: words }).first().waitFor();
  }

  button(name, scope = this.page.locator("main")) {
    return scope.getByRole("button", { name });
  }

  get dialog() {
    return this.page.locator("dialog");
  }
}

const faults = {
  async "a fiber that is parked after a deploy"(person, { state }) {
    await person.sees(person.fault("report"), "cannot resume");
    await person.click(person.fault("report").locator(".reason a"));
    await person.click(person.button("End by hand"));
    await person.dialog.locator("textarea").fill("900");
    await person.click(person.button("End it", person.dialog));
    await state("report-9", "completed");
  },
  async "a step that fails since an API is down"(person, { works, state }) {
    const fault = person.fault("bill", "Retrying");
    await person.sees(fault, "3 fibers");
    await person.sees(fault, /first .* ago/);
    await person.sees(fault, "It is tried again by itself");
    assert.match(await fault.locator(".trend").getAttribute("aria-label"), /^3 in the last 24 hours, 3 in the last hour/);
    await person.click(fault.locator(".reason a"));
    await person.click(person.page.locator(".fibers a").first());
    await person.sees(person.page.locator(".line.fault"), "post the bill");
    await person.sees(person.page.locator(".line", { has: person.page.locator(".saved") }), "add up");
    works("billing");
    for (const customer of ["ada", "grace", "edsger"]) await state(`bill-${customer}`, "completed");
  },
  async "an effect whose outcome is unknown"(person, { state }) {
    await person.click(person.button("Resolve", person.page.locator("[data-op]")));
    await person.dialog.locator("textarea").fill('"receipt 7"');
    await person.click(person.button("Resolve", person.dialog));
    await state("payment-7", "completed");
  },
  async "a fiber that ends its worker"(person, { works, state }) {
    const fault = person.fault("render");
    await person.sees(fault, "the process died");
    await person.click(fault.locator(".reason a"));
    await person.sees(person.page.locator(".remedy"), "It ends its process each time");
    works("renderer");
    await person.click(person.button("Resume"));
    await person.click(person.button("Resume", person.dialog));
    await state("page-3", "completed");
  },
  async "a wait for a message that is never sent"(person, { state }) {
    const waits = person.page.locator(".card", { hasText: "Waiting longest" });
    await person.click(waits.locator("a", { hasText: "approval" }).filter({ hasText: "message" }));
    await person.click(person.button("Send"));
    await person.click(person.button("Send", person.dialog));
    await state("approval-5", "completed");
  },
  async "a chat whose turns fail"(person) {
    const fault = person.fault("desk");
    await person.sees(fault, "2 turns");
    await person.click(fault.locator(".reason a"));
    await person.click(person.page.locator(".fibers a").first());
    await person.sees(person.page.locator(".conversation"), "Is it open?");
    await person.sees(person.page.locator(".fibers .note"), "An error occurred");
  },
  async "a schedule that fails"(person, { works, api }) {
    const fault = person.fault("sweep");
    await person.sees(fault, "disk: connection refused");
    await person.click(fault.locator(".reason a"));
    await person.sees(person.page.locator(".fibers a"), "janitor/cellar");
    works("disk");
    await until("it runs", async () => (await api("schedules")).schedules.every(({ error }) => error === null));
    await person.page.locator(".empty", { hasText: "No schedule fails" }).waitFor();
  },
  async "an agent that cannot be woken"(person, { works, state }) {
    const fault = person.fault("seal");
    await person.sees(fault, "failed to wake agent");
    works("keys");
    works("key");
    await person.click(person.button("Resume", fault));
    await person.click(person.button("Resume", person.dialog));
    await state("drawer-4", "completed");
  },
  async "a queue of unread messages"(person, { state }) {
    const fault = person.fault("import", "Unread");
    await person.sees(fault, "12 messages");
    await person.sees(fault, "It waits for “begin”");
    await person.click(fault.locator(".reason a"));
    await person.click(person.button("Send"));
    await person.click(person.button("Send", person.dialog));
    await state("import-2", "completed");
  },
  async "fibers that failed with an error"(person, { works, state }) {
    const fault = person.fault("ship");
    await person.sees(fault, "warehouse: connection refused");
    works("warehouse");
    await person.click(person.button(/^Resume all failed of ship/, fault));
    await person.click(person.button("Resume all", person.dialog));
    for (const order of ["order-8", "order-9"]) await state(`parcel-${order}`, "completed");
  },
};

const browser = await launch();
const it = await night();
let failed = 0;
if (process.argv[2] === "--pictures") {
  for (const viewport of widths) {
    for (const colorScheme of ["light", "dark"]) {
      const page = await open(browser, it, "", { viewport, colorScheme });
      await page.screenshot({ path: join(process.argv[3], `night-${colorScheme}-${viewport.width}.png`), fullPage: true });
      await page.context().close();
    }
  }
} else {
  for (const [sentence, answer] of Object.entries(faults)) {
    if (!sentence.includes(process.argv[2] ?? "")) continue;
    const page = await open(browser, it, "", { viewport: widths[1] });
    const person = new Person(page);
    let why;
    await answer(person, it).catch((error) => (why = error));
    if (!why && person.clicks > 6) why = new Error(`${person.clicks} clicks`);
    if (!why && page.complaints.length > 0) why = new Error(page.complaints.join());
    if (why) failed++;
    console.log(`${why ? "FAILED" : "ok"} ${sentence}: ${person.clicks} clicks${why ? `\n${why.stack}` : ""}`);
    await page.context().close();
  }
}
it.end();
await browser.close();
process.exit(failed === 0 ? 0 : 1);
