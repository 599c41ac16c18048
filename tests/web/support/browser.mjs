// Chromium, and the page of the example in it.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium } from "playwright-core";
import { folder } from "./packages.mjs";

/** The page as it was built with other packages, in place of the one that the server has. */
const built = join(folder, "page");

// A page that a test has put in place of the server's counts as one from elsewhere, which may not reach this machine.
const flags = ["--no-sandbox", "--disable-features=LocalNetworkAccessChecks", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];

/** What a browser complains of while it cannot reach a server. */
const unreachable = /WebSocket connection to '[^']*' failed|net::ERR_(CONNECTION|EMPTY|INCOMPLETE|SOCKET)\w*/;

export class Browser {
  static async start(options = {}) {
    const browser = new Browser();
    browser.folder = mkdtempSync(join(tmpdir(), "forever-browser-"));
    browser.context = await chromium.launchPersistentContext(browser.folder, { executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: flags, ...options });
    browser.complaints = [];
    if (existsSync(built)) {
      for (const [address, file] of [["/", "index.html"], ["/page.js", "page.js"], ["/page.css", "page.css"]]) {
        await browser.context.route((url) => url.pathname === address, (route) => route.fulfill({ path: join(built, file) }));
      }
    }
    return browser;
  }

  /** From now on, every chat has these messages when a page is opened. */
  async stored(messages) {
    await this.context.route("**/get-messages*", (route) => route.fulfill({ json: messages }));
  }

  /** A tab with a page; what goes wrong in it is remembered. */
  async open(address) {
    const page = await this.context.newPage();
    page.setDefaultTimeout(60_000);
    page.on("pageerror", (error) => this.complaints.push(error.message));
    page.on("console", (message) => message.type() === "error" && this.complaints.push(message.text()));
    await page.goto(address);
    await page.getByLabel("Message").waitFor();
    return page;
  }

  /** Nothing has gone wrong but, if the server was `away`, that it could not be reached. */
  quiet({ away = false } = {}) {
    const complaints = this.complaints.filter((complaint) => !(away && unreachable.test(complaint)));
    this.complaints = [];
    assert.deepEqual(complaints, []);
  }

  async end() {
    await this.context.close();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
