// A `fetch` for chats of `forever::serve` that outlasts a server that is away.

/** The shortest and the longest pause between two attempts, in ms. */
const [SHORTEST, LONGEST] = [100, 4000];

/** The rest of a stream is no longer there. The stored messages have it. */
export class StreamLost extends Error {}

/**
 * `fetch` that waits for a server that is away, and resumes an answer whose stream broke off.
 *
 * Only `init.signal` ends the wait. The server counts a POST that it receives twice once.
 */
export async function resilientFetch(url, init = {}) {
  // What is no request fails at once.
  new Request(url);
  const response = await attempt(url, init);
  return isStream(response) ? new Response(resumed(response, url, init), response) : response;
}

const isStream = (response) => response.headers.get("content-type")?.startsWith("text/event-stream") ?? false;

/** The first response of the server itself. Unless it is a stream, it has arrived whole. */
async function attempt(url, init) {
  for (let pause = SHORTEST; ; pause = Math.min(2 * pause, LONGEST)) {
    try {
      const response = await fetch(url, init);
      // 429 is too many requests, and from 502 on a proxy answers for a server that is away.
      if (response.status !== 429 && response.status < 502) {
        if (!isStream(response)) await response.clone().arrayBuffer();
        return response;
      }
      await response.body?.cancel();
    } catch (error) {
      // A `TypeError` is an error of the network.
      if (init.signal?.aborted || !(error instanceof TypeError)) throw error;
    }
    await sleep(pause, init.signal);
  }
}

/** The stream up to `[DONE]`, over as many connections as it takes. */
function resumed(first, url, init) {
  const rest = init.method === "POST" ? `${url}/rest/stream` : url;
  let [reader, arrived, held, last, pause] = [textOf(first), "", "", undefined, SHORTEST];
  const resume = async () => {
    await sleep(pause, init.signal);
    pause = Math.min(2 * pause, LONGEST);
    const headers = { ...init.headers, "last-event-id": last };
    const response = await (last ? attempt(rest, { ...init, method: "GET", body: undefined, headers }) : attempt(url, init));
    if (!isStream(response)) throw new StreamLost((await response.text()) || "the turn has ended");
    [reader, arrived, held] = [textOf(response), "", ""];
  };
  const pull = async (stream) => {
    for (let passed = false; !passed; ) {
      const { value, done } = await reader.read().catch((error) => {
        if (init.signal?.aborted) throw error;
        return { done: true };
      });
      if (done) await resume();
      arrived += value ?? "";
      for (let end; (end = arrived.indexOf("\n\n") + 2) > 1; arrived = arrived.slice(end)) {
        const event = arrived.slice(0, end);
        const [, id] = /^id: ?(.+)$/m.exec(event) ?? [];
        const isEnd = /^data: ?\[DONE\]$/m.test(event);
        // An event without an id is sent again after a loss, so it is passed on with the next one that has an id.
        held += event;
        if (!id && !isEnd) continue;
        stream.enqueue(held);
        [held, last, pause, passed] = ["", id ?? last, SHORTEST, true];
        if (isEnd) return stream.close();
      }
    }
  };
  return new ReadableStream({ pull, cancel: (reason) => reader.cancel(reason) }).pipeThrough(new TextEncoderStream());
}

const textOf = (response) => response.body.pipeThrough(new TextDecoderStream()).getReader();

function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    const over = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", over);
      if (signal?.aborted) reject(signal.reason);
      else resolve();
    };
    const timer = setTimeout(over, ms);
    signal?.addEventListener("abort", over);
  });
}
