// What stands before a server: it has the page also while the server is away, and then says so with 503, or breaks connections off.
import { readFileSync } from "node:fs";
import { createServer, request } from "node:http";
import { connect } from "node:net";
import { extname, join } from "node:path";

const KINDS = { ".html": "text/html", ".js": "text/javascript", ".css": "text/css" };

export class Front {
  /** With the files of a built page. */
  static async of(server, folder) {
    const front = new Front();
    Object.assign(front, { server, folder, refused: 0, says503: false });
    front.listener = createServer((asked, answer) => front.#serve(asked, answer)).on("upgrade", (asked, near, head) => front.#upgrade(asked, near, head));
    await new Promise((resolve) => front.listener.listen(0, "127.0.0.1", resolve));
    front.host = `127.0.0.1:${front.listener.address().port}`;
    return front;
  }

  #serve(asked, answer) {
    const path = new URL(asked.url, "http://front").pathname;
    if (!path.startsWith("/agents/")) return this.#file(path, answer);
    const far = request({ ...this.#server, path: asked.url, method: asked.method, headers: asked.headers }, (response) => {
      answer.writeHead(response.statusCode, response.headers);
      answer.flushHeaders();
      response.on("error", () => answer.destroy()).pipe(answer);
    });
    far.on("error", () => {
      this.refused += 1;
      if (answer.headersSent || !this.says503) return answer.destroy();
      answer.writeHead(503, { "content-type": "text/html" }).end("<h1>503 Service Unavailable</h1>");
    });
    answer.on("close", () => far.destroy());
    asked.pipe(far);
  }
  #file(path, answer) {
    const file = path === "/" ? "index.html" : path.slice(1);
    if (!KINDS[extname(file)]) return answer.writeHead(404).end();
    answer.writeHead(200, { "content-type": KINDS[extname(file)] }).end(readFileSync(join(this.folder, file)));
  }
  #upgrade(asked, near, head) {
    const far = connect(this.#server.port, this.#server.host, () => {
      const headers = Array.from({ length: asked.rawHeaders.length / 2 }, (_, at) => `${asked.rawHeaders[2 * at]}: ${asked.rawHeaders[2 * at + 1]}\r\n`);
      far.write(`GET ${asked.url} HTTP/1.1\r\n${headers.join("")}\r\n`);
      far.write(head);
      near.pipe(far).pipe(near);
    });
    far.on("error", () => {
      this.refused += 1;
      if (this.says503) near.end("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\n\r\n");
      else near.destroy();
    });
    far.on("close", () => near.destroy());
    near.on("error", () => far.destroy()).on("close", () => far.destroy());
  }
  get #server() {
    const [host, port] = this.server.host.split(":");
    return { host, port: Number(port) };
  }

  end() {
    this.listener.closeAllConnections();
    this.listener.close();
  }
}
