// A line to a server that can be cut, and mended.
import { createServer, connect } from "node:net";

export class Line {
  static async to(host) {
    const line = new Line();
    const [name, port] = host.split(":");
    line.sockets = new Set();
    line.whole = true;
    line.listener = createServer((near) => {
      if (!line.whole) return near.resetAndDestroy();
      const far = connect(Number(port), name);
      for (const [socket, other] of [[near, far], [far, near]]) {
        line.sockets.add(socket);
        socket.on("error", () => {}).on("close", () => {
          line.sockets.delete(socket);
          other.destroy();
        });
        socket.pipe(other);
      }
    });
    await new Promise((resolve) => line.listener.listen(0, "127.0.0.1", resolve));
    line.host = `127.0.0.1:${line.listener.address().port}`;
    return line;
  }

  /** Nobody is told; from now on nothing comes through. */
  cut() {
    this.whole = false;
    for (const socket of this.sockets) socket.resetAndDestroy();
  }

  mend() {
    this.whole = true;
  }

  end() {
    this.cut();
    this.listener.close();
  }
}
