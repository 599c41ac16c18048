// The example server, started and killed by a test.
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createInterface } from "node:readline";

const program = process.env.CHAT ?? join(import.meta.dirname, "../../../target/debug/examples/chat");

/** None of them outlives the test, however that ends. */
const running = new Set();
process.on("exit", () => running.forEach((child) => child.kill("SIGKILL")));
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => process.exit(1));

export class Server {
  /** With what answers by itself: `words`, or the `showcase` that people see. */
  static async start(script = "words") {
    const server = new Server();
    server.script = script;
    server.database = join(mkdtempSync(join(tmpdir(), "forever-web-")), "chat.db");
    server.host = "127.0.0.1:0";
    await server.again();
    return server;
  }

  /** The next process, over the same database and at the same address. */
  async again() {
    const port = this.host.split(":")[1];
    this.child = spawn(program, ["--port", port, "--database", this.database, "--script", this.script], { stdio: ["ignore", "pipe", "inherit"] });
    const { child } = this;
    running.add(child);
    child.once("exit", () => running.delete(child));
    const line = await new Promise((resolve, reject) => {
      const lines = createInterface({ input: child.stdout });
      lines.once("line", (line) => {
        // What else it says is for people, and is read so that it can be said.
        lines.on("line", () => {});
        resolve(line);
      });
      child.once("error", reject);
      child.once("exit", (code) => reject(new Error(`the server ended with ${code}`)));
    });
    this.host = new URL(line).host;
  }

  /** As the end of a machine. */
  async kill() {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const gone = new Promise((resolve) => this.child.once("exit", resolve));
    this.child.kill("SIGKILL");
    await gone;
  }

  async restart() {
    await this.kill();
    await this.again();
  }

  /** What is stored of a chat. */
  async messages(name) {
    return (await fetch(`http://${this.host}/agents/chat-agent/${name}/get-messages`)).json();
  }

  async end() {
    await this.kill();
    rmSync(dirname(this.database), { recursive: true, force: true });
  }
}
