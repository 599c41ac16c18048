// Runs cases, each with a server and a chat of its own, and says in one line what became of each.
import { Server } from "./server.mjs";

/**
 * The moment that a case is about had passed before it could be used: an answer was whole before the server was killed. That says nothing about the
 * server, so the case is run again, with words that come more slowly.
 */
export class TooLate extends Error {}

/** Whether the moment is still there. */
export function inTime(so) {
  if (!so) throw new TooLate("the moment had passed");
}

/**
 * A case is called with `server`, `name` (of the chat), `slow` (by which the pauses between words are to be multiplied) and `after`, which takes
 * what is to be done when it is over.
 */
export async function run(cases) {
  const only = process.argv[2];
  let failed = 0;
  for (const [sentence, perform] of Object.entries(cases)) {
    if (only && !sentence.includes(only)) continue;
    const begun = Date.now();
    const why = await attempt(perform);
    if (why) failed += 1;
    console.log(`${why ? "FAILED" : "ok"} ${sentence} (${((Date.now() - begun) / 1000).toFixed(1)} s)${why ? `\n${why.stack}` : ""}`);
  }
  // What hangs on a connection that tries again for ever does not keep the process.
  process.exit(failed === 0 ? 0 : 1);
}

/** Runs a case until it was in time: why it failed, if it did. */
async function attempt(perform, times = 1) {
  const ends = [];
  const slow = Math.min(2 ** (times - 1), 32);
  const server = await Server.start();
  try {
    await perform({ server, slow, name: `web-${crypto.randomUUID()}`, after: (end) => ends.unshift(end) });
    return undefined;
  } catch (error) {
    if (!(error instanceof TooLate) || times === 15) return error;
  } finally {
    for (const end of ends) await end();
    await server.end();
  }
  return attempt(perform, times + 1);
}
