// What every test waits for, and what the scripted model says.
import { setTimeout as sleep } from "node:timers/promises";

const bound = Number(process.env.WITHIN ?? 60) * 1000;

/** Until it is so. The bound is there for what never comes: nothing that comes is judged by when it does. */
export async function until(what, so, seen = () => "") {
  const end = Date.now() + bound;
  while (!(await so())) {
    if (Date.now() > end) throw new Error(`it does not come: ${what}\n${JSON.stringify(seen(), null, 1)}`);
    await sleep(10);
  }
}

/** The answer of `n` words. */
export const words = (n) => Array.from({ length: n }, (_, at) => `w${at} `).join("");

/** What a message says. */
export const text = (message) => message.parts.map((part) => part.text ?? "").join("");

/** A conversation as lines of text. */
export const lines = (messages) => messages.map((message) => `${message.role}: ${text(message)}`);

/** Numbers that are the same for the same seed: `dice(6)` is one of 0 to 5. */
export function dice() {
  let state = Number(process.env.SEED ?? Date.now() % 100_000);
  console.log(`SEED=${state}`);
  return (below) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    // The lower bits repeat soon.
    return Math.floor((state / 2_147_483_648) * below);
  };
}
