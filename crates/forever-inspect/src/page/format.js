// Times, values and states as people read them.
import { h } from "./dom.js";

/** What each state is called, and whether it needs a person. */
export const STATES = {
  failed: "Failed",
  parked: "Parked",
  interrupted: "Interrupted",
  running: "Running",
  waiting: "Waiting",
  pending: "Pending",
  completed: "Completed",
  cancelled: "Cancelled",
};

export const badge = (state) => h("span", { class: `badge ${state}` }, STATES[state] ?? state);

const UNITS = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1000, "s"],
];

/** A length of time in one or two units: `3 min`, `2 h 5 min`. */
export function span(ms) {
  ms = Math.max(0, ms);
  if (ms < 1000) return `${Math.round(ms)} ms`;
  for (const [n, [size, unit]] of UNITS.entries()) {
    if (ms < size) continue;
    const whole = Math.floor(ms / size);
    const [less, name] = UNITS[n + 1] ?? [];
    const rest = less && whole < 10 ? Math.floor((ms % size) / less) : 0;
    return rest ? `${whole} ${unit} ${rest} ${name}` : `${whole} ${unit}`;
  }
}

/** A time as an age, with the time itself as its title. It stays true while the page is open. */
export function age(ms, now = Date.now()) {
  if (ms === null || ms === undefined) return null;
  // A time that is damaged has no date.
  if (Number.isNaN(new Date(ms).getTime())) return h("span", null, String(ms));
  return h("time", { datetime: new Date(ms).toISOString(), title: new Date(ms).toLocaleString(), "data-ms": ms }, relative(ms, now));
}

export function relative(ms, now = Date.now()) {
  return ms > now ? `in ${span(ms - now)}` : `${span(now - ms)} ago`;
}

/** A JSON value in one line, cut off at a length. */
export function short(value, length = 60) {
  const text = JSON.stringify(value) ?? "undefined";
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

/** A stored value, short. */
export function preview(value, length) {
  if (value.is_secret) return "••••••";
  if (value.value === null && value.preview) return `${value.preview.slice(0, length ?? 60)}… (${bytes(value.bytes)})`;
  return short(value.value, length);
}

export const bytes = (n) => (n < 1024 ? `${n} B` : n < 1 << 20 ? `${(n / 1024).toFixed(1)} KB` : `${(n / (1 << 20)).toFixed(1)} MB`);

/** A stored value in full: a tree that opens. */
export function tree(view, open = false) {
  if (view.is_secret) return h("span", { class: "secret", title: "marked #[secret]" }, "•••••• secret");
  if (view.value === null && view.preview) return h("span", { class: "mono" }, view.preview, h("em", null, ` … ${bytes(view.bytes)}`));
  return node(view.value, open);
}

function node(value, open) {
  if (value === null || typeof value !== "object") {
    const kind = value === null ? "null" : typeof value;
    const text = JSON.stringify(value);
    if (kind === "string" && (text.length > 160 || value.includes("\n"))) {
      return h("details", null, h("summary", { class: "mono string" }, short(value, 120)), h("pre", null, value));
    }
    return h("span", { class: `mono ${kind}` }, text);
  }
  const entries = Object.entries(value);
  const isList = Array.isArray(value);
  if (entries.length === 0) return h("span", { class: "mono" }, isList ? "[]" : "{}");
  const head = h("summary", { class: "mono" }, short(value, 60), h("em", null, isList ? ` ${entries.length} items` : ""));
  const most = entries.slice(0, 200).map(([name, inner]) => h("li", null, h("span", { class: "name mono" }, name), ": ", node(inner, false)));
  const more = entries.length > most.length ? h("li", { class: "quiet" }, `… ${entries.length - most.length} more`) : null;
  return h("details", { open }, head, h("ul", { class: "tree" }, most, more));
}

/** A number of things, of which there may be more. */
export const plural = (n, one, isMore = false, many = `${one}s`) => `${n.toLocaleString("en")}${isMore ? " or more" : ""} ${n === 1 && !isMore ? one : many}`;

/** How long it took or, if it has not ended, for how long it is in its state. */
export const lasted = ({ created_ms, changed_ms, finished_ms }, now = Date.now()) => (finished_ms === null ? span(now - changed_ms) : span(finished_ms - created_ms));

/** The name of a cut point without what tells that it is not over. */
export const plain = (name) => name.replace(/ pending(?=#|$)/, "");

/** What a fiber is doing or needs, in one sentence. */
export function sentence(fiber, now = Date.now()) {
  const { state, wait, retry, step, reason } = fiber;
  const at = fiber.at && plain(fiber.at);
  if (retry && !["completed", "failed", "cancelled"].includes(state)) {
    const next = retry.next_attempt_ms > now ? `the next attempt is ${relative(retry.next_attempt_ms, now)}` : "the next attempt is under way";
    return `“${retry.step}” failed ${plural(retry.failed, "time")}, ${next}: ${retry.error}`;
  }
  if (state === "waiting" && wait) {
    const for_ = [];
    if (wait.topics.length) for_.push(`a message on ${wait.topics.map((topic) => `“${topic}”`).join(" or ")}`);
    if (wait.fibers.length) for_.push(wait.fibers.length === 1 ? "another fiber" : `${wait.any_fiber ? "one" : "all"} of ${wait.fibers.length} fibers`);
    const until = wait.due_ms === null ? "" : `${for_.length ? ", or until" : " until"} ${new Date(wait.due_ms).toLocaleString()} (${relative(wait.due_ms, now)})`;
    return `Waits${for_.length ? ` for ${for_.join(" or ")}` : ""}${until}`;
  }
  if (reason) return reason;
  if (state === "running") return step ? `Runs “${step.name}” since ${span(now - step.started_ms)}` : at ? `Runs behind “${at}”` : "Runs from its start";
  if (state === "completed") return "Completed";
  if (state === "pending") return at ? `Ready to go on behind “${at}”` : "Ready to begin";
  return at ? `Stands at “${at}”` : "";
}

/** What a person can do about a fiber that has stopped. */
export function remedy(fiber) {
  const reason = fiber.reason ?? "";
  if (fiber.state === "parked" && reason.includes("may have executed")) {
    return "Look at the other side whether it was carried out, then say so below. The fiber goes on from there.";
  }
  if (fiber.state === "parked" && reason.startsWith("a message to ")) {
    return "Discard the message below and resume, then send what was meant. Or deploy a recv! that reads it.";
  }
  if (fiber.state === "parked") return "Deploy code that fits what is stored (the reason says what does not), or resolve the fiber by hand. It is tried again at each open.";
  if (fiber.state === "failed" && reason.startsWith("the process died ")) {
    return "It ends its process each time. Look at the program's log and at what it does behind the last checkpoint, deploy a fix, then resume.";
  }
  if (fiber.state === "failed") return "Fix the cause first. Resume goes on from the last checkpoint, with the values shown here. Restart begins again with the arguments.";
  if (fiber.state === "interrupted") return "Fix the cause first. Resume goes on from the last checkpoint. A closure can only be resolved.";
  return "";
}
