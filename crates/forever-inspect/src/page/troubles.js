// What is wrong: each reason with how many, since when, how often by hour, and what to do about it.
import { actionsOf, bulk } from "./actions.js";
import { h, svg } from "./dom.js";
import { age, badge, plural, remedy } from "./format.js";
import { chatHref, fiberHref, fibersHref } from "./links.js";

const HOUR = 3_600_000;

/** The last 24 hours as bars, with the same in words. */
export function trend(hours, now) {
  const most = Math.max(...hours);
  if (most === 0) return h("span", { class: "quiet" }, "none in the last 24 hours");
  const sum = hours.reduce((sum, n) => sum + n, 0);
  const peak = hours.lastIndexOf(most);
  const clock = (hour) => new Date(now - (23 - hour) * HOUR).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const words = `${sum} in the last 24 hours, ${hours[23]} in the last hour, the most (${most}) in the hour before ${clock(peak)}`;
  const bars = hours.map((n, hour) => svg("rect", { x: hour * 5, y: n ? 20 - Math.max(3, (n / most) * 20) : 19, width: 4, height: n ? Math.max(3, (n / most) * 20) : 1, class: n ? "" : "none" }));
  return svg("svg", { class: "trend", width: 119, height: 20, role: "img", "aria-label": words }, svg("title", null, words), bars);
}

/** Times, and the trend if it is known. */
function when({ first_ms, last_ms, at_least, hours }, now) {
  return h(
    "p",
    { class: "when" },
    h("span", null, "first ", age(first_ms), at_least && " or earlier"),
    last_ms - first_ms >= 1000 && h("span", null, "last ", age(last_ms)),
    hours && trend(hours, now),
  );
}

/** One kind of trouble. The reason leads to those that it has stopped; buttons stand beside what they are for. */
function item({ key, badge, name, note, count, href, reason, when, remedy, buttons }) {
  return h(
    "li",
    { class: "trouble" },
    h("p", { class: "what" }, badge, h("b", null, name), note && h("span", null, note)),
    h("p", { class: "count" }, count),
    h("p", { class: "reason" }, h("a", { href, "data-row": key }, reason)),
    when,
    h("p", { class: "remedy" }, remedy),
    buttons && h("div", { class: "buttons" }, buttons),
  );
}

/** Where the fibers or turns of a group are listed, or the only one. */
function place({ kind, name, count, at_least, example, agent }) {
  const isOne = count === 1 && !at_least;
  if (kind === "turn") return isOne ? chatHref({ class: agent[0], agent: agent[1] }) : "#/chats?failed=true";
  if (isOne && example) return fiberHref(example);
  return kind === "retrying" ? fibersHref({ retrying: "true", name }) : fibersHref({ state: kind, name });
}

function advice({ kind, reason }) {
  if (kind === "turn") return "Fix the cause. The person asks again: a failed turn is not retried.";
  if (kind === "retrying") return "Fix what the step calls. It is tried again by itself.";
  if (kind === "parked" && reason.startsWith("a message to ")) return "Open it, discard the message, resume, and send what was meant.";
  if (kind === "parked") return "Deploy code that fits what is stored, or open it and end it by hand.";
  if (kind === "failed" && !reason.startsWith("the process died ")) return "Fix the cause, then resume: it goes on from the last checkpoint.";
  return remedy({ state: kind, reason });
}

/** What a person can do about a group from here. */
function commands(group, { actions, refresh }) {
  const { kind, name, count, at_least, example } = group;
  if (!actions || !["failed", "interrupted"].includes(kind)) return null;
  if (count === 1 && !at_least && example) return actionsOf({ id: example, state: kind, at: null, wait: null }, refresh).slice(0, 1);
  return h("button", { type: "button", onclick: () => bulk("resume", { state: kind, name }, refresh) }, `Resume all ${kind} of ${name} …`);
}

const BADGES = { turn: ["failed", "Failed turn"], retrying: ["parked", "Retrying"] };

function group(one, data, refresh) {
  const { kind, name, step, reason, count, at_least } = one;
  const [look, title] = BADGES[kind] ?? [];
  return item({
    key: `${kind} ${name} ${reason}`,
    badge: title ? h("span", { class: `badge ${look}` }, title) : badge(kind),
    name,
    note: step ? `“${step}”` : null,
    count: plural(count, kind === "turn" ? "turn" : "fiber", at_least),
    href: place(one),
    reason: reason || "without a reason",
    when: when(one, data.now_ms),
    remedy: advice(one),
    buttons: commands(one, { actions: data.actions, refresh }),
  });
}

function schedule(one) {
  const isAside = one.next_ms === null;
  return item({
    key: one.id,
    badge: h("span", { class: "badge failed" }, isAside ? "Set aside" : "Schedule"),
    name: one.name,
    note: `${one.class}/${one.agent}`,
    count: one.attempts > 0 ? `${plural(one.attempts, "attempt")} failed` : "its last run failed",
    href: "#/schedules?failed=true",
    reason: one.error ?? "without an error",
    remedy: isAside ? "Fix the cause, then ask for it again: it does not run by itself any more." : ["Fix the cause. It runs again ", age(one.next_ms), "."],
  });
}

function queue({ fiber, messages, at_least, first_ms, last_ms }) {
  return item({
    key: `queue ${fiber.id}`,
    badge: h("span", { class: "badge parked" }, "Unread"),
    name: fiber.name,
    note: fiber.key ?? fiber.agent?.join("/"),
    count: plural(messages, "message", at_least),
    href: fiberHref(fiber.id),
    reason: "messages were sent that it has not received",
    when: when({ first_ms, last_ms, at_least }),
    remedy: fiber.state === "waiting" && fiber.wait?.topics.length ? `It waits for ${fiber.wait.topics.map((topic) => `“${topic}”`).join(" or ")}: send that, or cancel it.` : "Look at what it does instead of receiving them.",
  });
}

function late(fibers) {
  return item({
    key: `late ${fibers[0].id}`,
    badge: badge("pending"),
    name: "Ready, and not started",
    count: plural(fibers.length, "fiber", fibers.length >= 8),
    href: fibersHref({ state: "pending", oldest_first: "true" }),
    reason: fibers[0].name,
    when: when({ first_ms: fibers[0].changed_ms, last_ms: fibers[0].changed_ms }),
    remedy: "Is its function registered, and a worker alive?",
  });
}

/** Fibers that have been ready for long. */
export const lateOf = (data) => data.oldest_pending.filter((fiber) => data.now_ms - fiber.changed_ms > 30_000);

/** What is to be listed: an effect in doubt is listed with the operations. */
export const groupsOf = (data) => data.troubles.filter(({ kind, reason }) => !(kind === "parked" && data.in_doubt.length > 0 && reason.includes("may have executed")));

/** Everything that is wrong, what needs a person first. */
export function troubles(data, refresh) {
  const groups = groupsOf(data);
  const is = (...kinds) => groups.filter(({ kind }) => kinds.includes(kind)).map((one) => group(one, data, refresh));
  const waits = lateOf(data);
  const items = [is("failed", "parked", "interrupted"), is("turn"), data.schedules.map(schedule), is("retrying"), data.queues.map(queue), waits.length > 0 && late(waits)].flat().filter(Boolean);
  if (items.length === 0) return null;
  return h("section", { class: "card" }, h("h2", null, "What is wrong", h("span", { class: "count" }, plural(items.length, "reason"))), h("ul", { class: "troubles reasons" }, items));
}

/** When it began and when it last happened, of everything that has a time. */
export function since({ troubles }) {
  if (troubles.length === 0) return null;
  const first = Math.min(...troubles.map(({ first_ms }) => first_ms));
  const last = Math.max(...troubles.map(({ last_ms }) => last_ms));
  return h("p", { class: "quiet" }, "It began ", age(first), troubles.some(({ at_least }) => at_least) && " or earlier", last > first && [", the newest ", age(last)], ".");
}
