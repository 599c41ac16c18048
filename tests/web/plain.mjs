// The page of the example without packages, at `/plain`, in Chromium.
//
//   npm ci && node plain.mjs
import assert from "node:assert/strict";
import { Browser } from "./support/browser.mjs";
import { inTime, run } from "./support/cases.mjs";
import { until, words } from "./support/until.mjs";

run({
  async "an answer goes on in every tab when the server was killed in the middle of it"(on) {
    const browser = await Browser.start();
    on.after(() => browser.end());
    const address = `http://${on.server.host}/plain`;
    const pages = [await browser.open(address), await browser.open(address)];
    await pages[0].getByLabel("Message").fill("Tell me something long.");
    await pages[0].getByRole("button", { name: "Send" }).click();
    for (const page of pages) await page.getByText("w3 ").waitFor();
    await on.server.kill();
    await pages[0].getByText("Not connected").waitFor();
    const shown = (page) => page.locator(".message").allTextContents();
    for (const page of pages) inTime((await shown(page))[1] !== words(30));
    await on.server.again();
    for (const page of pages) {
      await until("the whole answer", async () => (await shown(page))[1] === words(30));
      assert.deepEqual(await shown(page), ["Tell me something long.", words(30)]);
    }
    browser.quiet({ away: true });
  },
});
