// The ten faults of `examples/inspect.rs`, repaired with the clicks of the guide alone (docs/guide/src/operations/inspector.md), and with the
// commands of `faults.sh` alone.
//
//   cargo build --example inspect --bin forever && npm ci && node faults.mjs
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { dialog, launch, open, perform, state } from "./support/inspector.mjs";
import { until } from "./support/until.mjs";

const forever = process.env.FOREVER ?? join(import.meta.dirname, "../../target/debug/forever");
const guide = readFileSync(join(import.meta.dirname, "../../docs/guide/src/operations/inspector.md"), "utf8");
const section = guide.split("## The ten faults")[1].split("\n## ")[0];

/** Faults with their clicks, and what has become of a fiber then. */
const faults = section
  .split("\n")
  .filter((line) => line.startsWith("| ") && line.includes("›"))
  .map((line) => {
    const [fault, clicks, then] = line.slice(2, -2).split(" | ");
    const [key, wanted] = then.replaceAll("`", "").split(" ");
    return { fault, clicks: clicks.replaceAll("`", "").split(" › "), key, wanted };
  });
const script = readFileSync(join(import.meta.dirname, "faults.sh"), "utf8");

/** One click of the guide. */
async function click(page, what) {
  const isOpen = await dialog(page).evaluate((node) => node.open);
  const [, label, value] = /^([A-Z][^:]*): (.*)$/.exec(what) ?? [];
  if (label) {
    const field = dialog(page).locator("label", { hasText: new RegExp(`^${label}`) }).locator("input, select, textarea");
    return (await field.evaluate((node) => node.tagName)) === "SELECT" ? field.selectOption(value) : field.fill(value);
  }
  if (/^[a-z]+-\w+$/.test(what)) {
    await page.locator("header input").fill(what);
    await page.keyboard.press("Enter");
    return page.locator(".head", { hasText: what }).waitFor();
  }
  const named = (role) => (isOpen ? dialog(page) : page).getByRole(role, { name: what, exact: true });
  if (isOpen) {
    await named("button").click();
    // A command says what became of it.
    return page.locator(".toast").first().waitFor();
  }
  const target = named("button").or(named("link")).or(page.locator("main a", { hasText: what })).first();
  await target.waitFor();
  for (const toast of await page.locator(".toast").all()) await toast.evaluate((node) => node.remove()).catch(() => {});
  await target.click();
}

/** Every fault is repaired, and nothing has become of another fiber. */
async function isMended(shop, limits) {
  for (const { key, wanted } of faults.filter(({ key }) => key !== "order-1042")) await state(shop, key, wanted);
  for (const [key, wanted] of Object.entries(limits)) await state(shop, key, wanted);
  const { fiber } = await shop.api("fibers/invoice-5-b");
  assert.equal(fiber.result.value, "Konrad pays 238, with 19 % of tax");
  const { fiber: before } = await shop.api(`fibers/${(await shop.find("invoice-5")).id}`);
  assert.equal(before.result.value, "Konrad pays 214, with 7 % of tax", "the other one is as it was");
  const deliveries = (await shop.api("fibers?name=deliver")).fibers;
  await until("all deliveries", async () => (await shop.api("fibers?name=deliver&state=completed")).fibers.length === deliveries.length);
  const overview = await shop.api("overview");
  assert.deepEqual([overview.in_doubt, overview.troubles.filter(({ kind }) => kind === "retrying")], [[], []]);
  assert.equal((await shop.find("order-1045")).state, "waiting");
}

const cases = {
  async "ten faults are repaired with the clicks that the guide has"(browser, shop) {
    const page = await open(browser, shop, "");
    for (const { fault, clicks, key, wanted } of faults) {
      for (const what of clicks) {
        await click(page, what).catch((error) => {
          throw new Error(`${fault}: ${what}: ${error.message}`);
        });
        assert.equal(await page.locator(".toast.error").count(), 0, `${fault}: ${what}`);
      }
      await state(shop, key, wanted);
    }
    await isMended(shop, { "order-1042": "waiting", "order-1043": "failed" });
    // The search looks for an id first, and a key has none.
    assert.deepEqual(page.complaints.filter((text) => !text.includes("status of 404")), []);
  },

  async "ten faults are repaired with the commands that the guide has"(_, shop) {
    const env = { ...process.env, PATH: `${dirname(forever)}:${process.env.PATH}` };
    // `doctor` ends with 5: something needs attention.
    const given = script.replace("company.db doctor", "company.db doctor || test $? = 5");
    const { stdout } = await promisify(execFile)("bash", ["-euo", "pipefail", "-c", given], { cwd: shop.folder, env });
    assert.match(stdout, /6 failed of `deliver`, first .*: the warehouse is closed/);
    assert.match(stdout, /rate = 7/);
    await isMended(shop, { "order-1042": "failed", "order-1043": "waiting" });
  },
};

assert.equal(faults.length, 10, "faults of the guide");
const browser = await launch();
const passed = await perform(browser, cases);
await browser.close();
process.exit(passed ? 0 : 1);
