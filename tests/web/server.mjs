// The example server, started and killed by a test.
import { spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";

const program = process.env.CHAT ?? join(import.meta.dirname, "../../target/debug/examples/chat");

export class Server {
  static async start(port = 0, database = join(mkdtempSync(join(tmpdir(), "forever-web-")), "chat.db")) {
    const server = new Server();
    server.database = database;
    server.child = spawn(program, ["--port", String(port), "--database", database], { stdio: ["ignore", "pipe", "inherit"] });
    const line = await new Promise((resolve, reject) => {
      createInterface({ input: server.child.stdout }).once("line", resolve);
      server.child.once("exit", (code) => reject(new Error(`the server ended with ${code}`)));
    });
    server.host = new URL(line).host;
    return server;
  }

  /** As the end of a machine. */
  async kill() {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const gone = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.kill("SIGKILL");
    await gone;
  }

  /** The next process, over the same database and at the same address. */
  async again() {
    return Server.start(Number(this.host.split(":")[1]), this.database);
  }
}
