// The inspector over the company of `examples/inspect.rs`, in Chromium: what a person sees and does.
//
//   cargo build --example inspect && npm ci && node inspect.mjs [part of a case's name]
//   node inspect.mjs --pictures FOLDER     how it looks
import assert from "node:assert/strict";
import { join } from "node:path";
import { button, company, dialog, launch, open, perform, state, widths } from "./support/inspector.mjs";
import { until } from "./support/until.mjs";

const hashes = async (company) => ({
  overview: "#/",
  fibers: "#/fibers",
  failed: `#/fiber/${(await company.find("order-1042")).id}`,
  scrubbed: `#/fiber/${(await company.find("order-1044")).id}?at=2`,
  doubt: `#/fiber/${(await company.find("order-1041")).id}`,
  parked: `#/fiber/${(await company.find("report-9")).id}`,
  waits: `#/fiber/${(await company.find("order-1044")).id}`,
  retries: `#/fiber/${(await company.find("notice-77")).id}`,
  children: `#/fiber/${(await company.find("hire-3")).id}`,
  ops: "#/ops",
  functions: "#/functions",
  function: "#/function/purchase",
  streams: `#/fiber/${(await company.find("digest-4")).id}`,
  chats: "#/chats",
  chat: "#/chat/help-desk/ada",
  agents: "#/agents",
  schedules: "#/schedules",
});

// The view of before is shown, under the new address, until the new one has its data.
const viewOf = (page, title) => page.locator("h1", { hasText: title }).waitFor();

const cases = {
  async "every view fits both widths in both schemes, without a complaint"(browser, company) {
    for (const [name, hash] of Object.entries(await hashes(company))) {
      for (const viewport of widths) {
        for (const colorScheme of ["light", "dark"]) {
          const page = await open(browser, company, hash, { viewport, colorScheme });
          const tooWide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          assert.ok(tooWide <= 0, `${name} at ${viewport.width}: ${tooWide} px too wide`);
          const back = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
          assert.equal(back, colorScheme === "dark" ? "rgb(17, 18, 20)" : "rgb(246, 247, 249)");
          assert.deepEqual(page.complaints, [], name);
          await page.context().close();
        }
      }
    }
  },

  async "a slow line shows what came, one question at a time, while more happens"(browser, company) {
    const page = await open(browser, company, "#/functions");
    let [under_way, most, asked] = [0, 0, 0];
    await page.route("**/api/overview", async (route) => {
      asked++;
      most = Math.max(most, ++under_way);
      await new Promise((resume) => setTimeout(resume, 1000));
      under_way--;
      await route.continue();
    });
    await page.evaluate(() => {
      location.hash = "#/";
      setInterval(() => dispatchEvent(new Event("hashchange")), 100);
    });
    await viewOf(page, "Needs you");
    await until("it asks again", () => asked > 2);
    assert.equal(most, 1);
    // Another view does not wait for the answer.
    await page.evaluate(() => (location.hash = "#/functions"));
    await viewOf(page, "Functions");
    await page.context().close();
  },

  async "the overview says what is wrong, and leads to it"(browser, company) {
    const page = await open(browser, company, "");
    assert.equal(await page.locator("h1").textContent(), "Needs you");
    const sentence = await page.locator(".verdict .sentence").textContent();
    for (const part of ["1 operation of unknown outcome", "9 fibers failed", "3 fibers parked", "1 retrying"]) assert.ok(sentence.includes(part), sentence);
    await page.locator(".reasons a", { hasText: "the limit is 500" }).click();
    await page.waitForURL(/state=failed&name=purchase/);
    await viewOf(page, "Fibers");
    assert.equal(await page.locator(".fibers a").count(), 2);
    await page.locator(".fibers a", { hasText: "order-1042" }).click();
    await viewOf(page, "purchase");
    assert.equal(await page.locator(".verdict .sentence").textContent(), "the order costs 640, and the limit is 500");
    assert.deepEqual(page.complaints, []);
  },

  async "the source has an arrow at the step and the values beside their lines"(browser, company) {
    const page = await open(browser, company, (await hashes(company)).doubt);
    const current = page.locator(".line.current");
    assert.match(await current.locator("code").textContent(), /step!\("charge", effect/);
    assert.equal(await current.locator(".arrow").textContent(), "▶");
    const approved = page.locator(".line", { hasText: "let approved" });
    assert.equal(await approved.locator(".value summary").textContent(), "approved true");
    assert.match(await approved.locator(".here").textContent(), /fibers? here/);
    const head = page.locator(".line").first();
    assert.match(await head.textContent(), /order \{"customer":"Ada"/);
    assert.ok(!(await page.content()).includes("4929 1234"), "the card is marked #[secret]");
    assert.match(await head.textContent(), /card ••••••/);
    assert.match(await page.locator(".timeline").textContent(), /approved.*within limit.*check limit/);
  },

  async "a fiber that is called has its frame, and the one that calls it too"(browser, company) {
    await until("research calls", async () => (await company.api(`fibers/${(await company.find("research-12")).id}`)).fiber.frames.length === 2);
    const page = await open(browser, company, `#/fiber/${(await company.find("research-12")).id}`);
    await page.locator(".frames a").nth(1).waitFor();
    assert.match(await page.locator(".frames").textContent(), /research at note.*summarize at /);
    await page.locator(".frames a").first().click();
    await page.locator(".line.current", { hasText: "call!(summarize" }).waitFor();
  },

  async "an operation of unknown outcome is resolved, and the fiber goes on"(browser, company) {
    const page = await open(browser, company, "#/ops");
    await button(page.locator("[data-op]"), "Resolve").click();
    await dialog(page).locator("textarea").fill("no json");
    await button(dialog(page), "Resolve").click();
    assert.match(await dialog(page).locator(".problem").textContent(), /not JSON/);
    await dialog(page).locator("textarea").fill('"receipt 17"');
    await button(dialog(page), "Resolve").click();
    await state(company, "order-1041", "completed");
    await page.locator(".empty").waitFor();
  },

  async "a person approves an order, and sees it end"(browser, company) {
    const page = await open(browser, company, (await hashes(company)).waits);
    assert.match(await page.locator(".verdict .sentence").textContent(), /a message on “approval”/);
    await button(page, "Send").click();
    assert.equal(await dialog(page).locator("input").inputValue(), "approval");
    await button(dialog(page), "Send").click();
    // Live: nobody asks for the page again.
    await page.locator(".head .badge.completed").waitFor();
    assert.match(await page.locator("aside").textContent(), /Result.*receipt/);
  },

  async "what was stopped is resumed, restarted, ended by hand and cancelled"(browser, company) {
    const views = await hashes(company);
    const page = await open(browser, company, views.failed);
    await button(page, "Resume").click();
    await button(dialog(page), "Resume").click();
    await page.locator(".toast", { hasText: "Resumed" }).waitFor();
    // The limit is as it was.
    await state(company, "order-1042", "failed");
    await button(page, "Restart").click();
    await button(dialog(page), "Cancel").click();
    assert.equal(await dialog(page).evaluate((node) => node.open), false);
    const parked = await open(browser, company, views.parked);
    assert.match(await parked.locator(".verdict").textContent(), /cannot resume/);
    await button(parked, "End by hand").click();
    await dialog(parked).locator("textarea").fill("900");
    await button(dialog(parked), "End it").click();
    await state(company, "report-9", "completed");
    const retries = await open(browser, company, views.retries);
    assert.match(await retries.locator(".verdict.warn .sentence").textContent(), /“post” failed \d+ times?, the next attempt/);
    await button(retries, "Cancel").click();
    await button(dialog(retries), "Cancel it").click();
    await state(company, "notice-77", "cancelled");
  },

  async "a value is edited, and the fiber goes on with it"(browser, company) {
    const page = await open(browser, company, (await hashes(company)).failed);
    await button(page, "Edit").click();
    await dialog(page).locator("select").selectOption("limit");
    assert.equal(await dialog(page).locator("textarea").inputValue(), "500");
    await dialog(page).locator("textarea").fill('"much"');
    await button(dialog(page), "Set it").click();
    await page.locator(".toast.error", { hasText: "cannot be read as `u" }).waitFor();
    await button(page, "Edit").click();
    await dialog(page).locator("select").selectOption("limit");
    await dialog(page).locator("textarea").fill("12345678901234567890");
    await button(dialog(page), "Set it").click();
    assert.match(await dialog(page).locator(".problem").textContent(), /so many digits/);
    await dialog(page).locator("textarea").fill("900");
    await dialog(page).locator("input[name=by]").fill("Ann");
    await button(dialog(page), "Set it").click();
    await page.locator(".timeline", { hasText: "edited by Ann: limit: 500 → 900" }).waitFor();
    await button(page, "Resume").click();
    await button(dialog(page), "Resume").click();
    await until("the order has gone on", async () => (await company.find("order-1042")).state !== "failed");
    assert.deepEqual(page.complaints.filter((text) => !text.includes("status of 4")), []);
  },

  async "the scrubber shows each checkpoint with what it has changed, and a fork begins there"(browser, company) {
    const page = await open(browser, company, (await hashes(company)).waits);
    const { id } = await company.find("order-1044");
    const kept = (await company.api(`fibers/${id}`)).history;
    const scrubber = page.locator(".scrubber input");
    assert.equal(await scrubber.getAttribute("max"), String(kept.length - 1));
    await scrubber.focus();
    await page.keyboard.press("Home");
    await page.waitForURL(/at=1$/);
    await page.locator(".scrubber", { hasText: "Behind checkpoint 1, “check limit”" }).waitFor();
    assert.match(await page.locator(".line.current code").first().textContent(), /step!\("check limit"/);
    assert.equal(await page.locator(".timeline li[aria-current] .n").first().textContent(), "1");
    assert.match(await page.locator(".values").first().textContent(), /limit500/);
    await page.getByLabel("The next checkpoint").click();
    await page.locator(".scrubber", { hasText: "Behind checkpoint 2, “within limit”" }).waitFor();
    await button(page, "Fork").click();
    await dialog(page).locator("input[name=id]").fill("order-1044-b");
    await button(dialog(page), "Fork").click();
    await page.waitForURL(/fiber\/order-1044-b/);
    await page.locator(".timeline", { hasText: "forked from" }).waitFor();
    assert.equal((await company.find("order-1044")).state, "waiting", "the other one is not touched");
    assert.deepEqual(page.complaints, []);

    const research = await company.find("research-12");
    let changed;
    await until("research has changed a local", async () => {
      const { history } = await company.api(`fibers/${research.id}`);
      changed = history.slice(1).find((entry) => entry.changed.length > 0);
      return changed !== undefined;
    });
    const past = await open(browser, company, `#/fiber/${research.id}?at=${changed.number}`);
    await past.locator("dd.changed").first().waitFor();
    assert.match(await past.locator("aside .card", { hasText: "Facts" }).textContent(), /Export/);
    assert.deepEqual(past.complaints, []);
  },

  async "a chat has its turns and what was said, and an error that may repeat a secret is hidden"(browser, company) {
    const page = await open(browser, company, "#/chats");
    await page.locator(".fibers a", { hasText: "help-desk/grace" }).filter({ hasText: "Error" }).waitFor();
    assert.ok(!(await page.content()).includes("no model may decide"), "functions of this program have secrets");
    await page.locator(".fibers a", { hasText: "help-desk/ada" }).filter({ hasText: "Answered" }).click();
    await viewOf(page, "help-desk/ada");
    assert.deepEqual(await page.locator(".conversation .words").allTextContents(), ["Where is my printer?", "It is on its way."]);
    assert.equal(await page.locator(".fibers .badge.completed").count(), 1);
    await page.locator("main a", { hasText: "Fibers of this chat" }).click();
    await viewOf(page, "Fibers");
    assert.equal(await page.locator(".fibers a").count(), 1);
    await page.keyboard.press("g");
    await page.keyboard.press("m");
    await viewOf(page, "Chats");
    assert.deepEqual(page.complaints, []);
  },

  async "the layout of a function is a graph, with a way back for each loop and a way past each branch"(browser, company) {
    const page = await open(browser, company, "#/function/research");
    const rows = (await page.locator(".graph li b").allTextContents()).map((name) => name.replace(/#\d+$/, ""));
    assert.equal(rows.length, 3, rows.join());
    assert.equal(rows[1], "search");
    const drawn = async (kind) => page.locator(`.graph path.${kind}`).evaluateAll((paths) => paths.map((path) => [Number(path.dataset.from), Number(path.dataset.to)]));
    // From `search` and from the call, to `search` again; past the loop to the end.
    assert.deepEqual((await drawn("back")).sort(), [[2, 2], [3, 2]]);
    assert.deepEqual((await drawn("skip")).sort(), [[1, 4], [2, 4]]);
    assert.match(await page.locator(".graph li", { hasText: "search" }).textContent(), /keeps .*notes/);
    await page.goto(`${company.address}#/function/purchase`);
    await page.locator(".graph li", { hasText: "approved" }).filter({ hasText: "4 fibers" }).waitFor();
    assert.equal(await page.locator(".graph circle.effect").count(), 1);
    assert.deepEqual(page.complaints, []);
  },

  async "a stream has its newest items, and the progress is shown, while the fiber runs"(browser, company) {
    const page = await open(browser, company, (await hashes(company)).streams);
    await page.locator("aside .card", { hasText: "subjects" }).filter({ hasText: "mail 3 of page 2" }).waitFor();
    await page.locator("aside .card", { hasText: "Facts" }).filter({ hasText: /Progress.*of 40 pages/ }).waitFor();
    assert.deepEqual(page.complaints, []);
  },

  async "one command reaches every fiber of a filter"(browser, company) {
    const page = await open(browser, company, "#/fibers?state=waiting&name=purchase");
    await page.locator(".fibers a").first().waitFor();
    await button(page, "Cancel all …").click();
    await button(dialog(page), "Cancel all").click();
    await page.locator(".toast", { hasText: "2 done" }).waitFor();
    for (const key of ["order-1044", "order-1045"]) await state(company, key, "cancelled");
  },

  async "keys, search, addresses and the scheme work without a mouse"(browser, company) {
    const page = await open(browser, company, "");
    await page.keyboard.press("g");
    await page.keyboard.press("f");
    await viewOf(page, "Fibers");
    await page.locator("[data-row]").first().waitFor();
    await page.keyboard.press("j");
    await page.keyboard.press("j");
    await page.keyboard.press("k");
    const first = await page.locator("[data-row]").first().getAttribute("data-row");
    assert.equal(await page.evaluate(() => document.activeElement.dataset.row), first);
    await page.keyboard.press("Enter");
    await page.waitForURL(new RegExp(`fiber/${first}`));
    await page.keyboard.press("/");
    await page.keyboard.type("order-1043");
    await page.keyboard.press("Enter");
    await page.waitForURL(/fiber\//);
    await page.locator(".sentence", { hasText: "costs 2400" }).waitFor();
    await page.keyboard.press("Escape");
    await page.keyboard.press("/");
    await page.keyboard.type("LIMIT IS");
    await page.keyboard.press("Enter");
    await page.waitForURL(/text=LIMIT/);
    await viewOf(page, "Fibers");
    assert.equal(await page.locator(".fibers a").count(), 2);
    await page.keyboard.press("Escape");
    await page.keyboard.press("t");
    const dark = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    assert.equal(await dark(), "rgb(17, 18, 20)");
    await page.reload();
    await page.locator(".fibers a").nth(1).waitFor();
    assert.equal(await dark(), "rgb(17, 18, 20)");
    await page.keyboard.press("?");
    await dialog(page).getByText("next and previous row").waitFor();
    await page.keyboard.press("Escape");
    await page.goto(`${company.address}#/fiber/nothing`);
    await viewOf(page, "Not here");
  },
};

async function pictures(browser, folder) {
  const shop = await company();
  for (const [name, hash] of Object.entries(await hashes(shop))) {
    for (const viewport of widths) {
      for (const colorScheme of ["light", "dark"]) {
        const page = await open(browser, shop, hash, { viewport, colorScheme });
        await page.screenshot({ path: join(folder, `${name}-${colorScheme}-${viewport.width}.png`) });
        await page.context().close();
      }
    }
  }
  await shop.end();
}

const browser = await launch();
let passed = true;
if (process.argv[2] === "--pictures") await pictures(browser, process.argv[3]);
else passed = await perform(browser, cases, process.argv[2]);
await browser.close();
process.exit(passed ? 0 : 1);
