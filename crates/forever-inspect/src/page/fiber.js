// One fiber: what it does or needs, where it stands in its source, and everything that is stored of it.
import { actionsOf, changesOf, discard, resolveOp } from "./actions.js";
import { api, copyable, h } from "./dom.js";
import { age, badge, lasted, plain, plural, preview, remedy, sentence, span, tree } from "./format.js";
import { nameOf, sourceView } from "./source.js";
import { fiberHref, fibersHref, functionHref } from "./links.js";

export async function load({ id, at }) {
  const path = `fibers/${encodeURIComponent(id)}`;
  if (at === undefined) return api(path);
  const [data, past] = await Promise.all([api(path), api(`${path}/at/${encodeURIComponent(at)}`)]);
  return { ...data, past };
}

export function render(data, { id, frame: chosen }, { refresh, go }) {
  const { ops, children, parents, past } = data;
  const { status } = data.fiber;
  // Behind an earlier checkpoint there were other functions on the stack, with other values.
  const fiber = past ? { ...data.fiber, frames: past.frames, branches: [], result: null, stash: null } : data.fiber;
  const doubtful = ops.filter((op) => op.state === "started" && status.state !== "running");
  const needs = ["failed", "parked", "interrupted"].includes(status.state) || doubtful.length > 0;
  const retries = status.retry && !["completed", "cancelled"].includes(status.state);
  const tone = needs ? "bad" : retries ? "warn" : status.state === "waiting" ? "wait" : status.state === "completed" ? "good" : "";
  return [
    parents.length > 0 &&
      h("nav", { class: "crumbs", "aria-label": "Parents" }, parents.toReversed().map((parent) => [h("a", { href: fiberHref(parent.id) }, parent.name), " › "]), status.name),
    h(
      "section",
      { class: "head" },
      h("div", { class: "title" }, h("h1", null, status.name), badge(status.state), status.is_closure && h("span", { class: "badge" }, "closure")),
      h("div", { class: "facts" }, copyable(status.id), status.key && ["key ", copyable(status.key)], status.agent && h("a", { href: fibersHref({ agent: status.agent.join("/") }) }, status.agent.join("/"))),
      data.actions && h("div", { class: "buttons" }, !past && actionsOf(status, refresh, doubtful.length > 0), changesOf(fiber, past?.number, refresh, go)),
    ),
    h("section", { class: `verdict ${tone}` }, h("p", { class: "sentence" }, sentence(status)), fault(data, past), needs && h("p", { class: "remedy" }, remedy(status)), fiber.problem && h("p", { class: "remedy" }, fiber.problem)),
    doubtful.length > 0 && operations("In doubt: was it carried out?", doubtful, data.actions, refresh),
    h(
      "div",
      { class: "columns" },
      h("div", null, scrubber(id, data.history, past, go), stack({ ...data, fiber }, id, chosen), data.history_problem ? h("section", { class: "card" }, h("h2", null, "Timeline"), h("p", { class: "quiet" }, data.history_problem)) : timeline(id, data.history, past?.number)),
      h("aside", null, values(fiber, chosen, past), messages(fiber, data.actions, refresh), streams(fiber), facts(status), family(status, children), ops.length > doubtful.length && operations("Operations", ops.filter((op) => !doubtful.includes(op)), false, refresh)),
    ),
  ];
}

/** Steps through the kept checkpoints. */
function scrubber(id, history, past, go) {
  const kept = history.filter((entry) => !entry.origin);
  if (kept.length < 2) return null;
  const found = past ? kept.findIndex((entry) => entry.number === past.number) : kept.length - 1;
  const place = found < 0 ? 0 : found;
  const href = (n) => (n >= kept.length - 1 ? fiberHref(id) : `${fiberHref(id)}?at=${kept[n].number}`);
  const step = (n, label, text) => h("a", { href: href(Math.min(Math.max(n, 0), kept.length - 1)), "aria-label": label, "aria-disabled": n < 0 || n >= kept.length ? "true" : null }, text);
  return h(
    "section",
    { class: "card scrubber" },
    step(place - 1, "The checkpoint before", "‹"),
    h("input", { type: "range", min: 0, max: kept.length - 1, value: place, "aria-label": "Checkpoint", "aria-valuetext": `${kept[place].number}, ${plain(kept[place].at)}`, onchange: (event) => go(href(Number(event.target.value))) }),
    step(place + 1, "The next checkpoint", "›"),
    h("span", null, past ? [`Behind checkpoint ${past.number}, “${plain(past.frames.at(-1)?.at ?? "")}”. `, h("a", { href: fiberHref(id) }, "Now")] : "As it stands now."),
  );
}

const isOver = ({ state }) => ["completed", "failed", "cancelled"].includes(state);

/**
 * The step that a fiber is at in a function, and what is to be said of it: it has failed, it is retried, its outcome is unknown, or it is under
 * way. What is not stored is not guessed.
 */
function now({ fiber: { status, frames }, ops, past, failed_in: failed }, fn) {
  if (past) return undefined;
  if (failed) return failed.function === fn.name ? { step: failed.step, tag: "failed here" } : undefined;
  if ((frames.at(-1)?.function ?? status.name) !== fn.name || isOver(status)) return undefined;
  if (status.retry) return { step: status.retry.step, tag: plural(status.retry.failed, "failed attempt") };
  if (status.step) return { step: status.step.name };
  const doubtful = ops.find((op) => op.state === "started" && op.function === fn.name);
  return doubtful && { step: doubtful.step };
}

/** Where it has failed, in words. */
function fault({ fiber: { status }, failed_in: failed }, past) {
  if (past || !failed) return null;
  return h("p", null, "It failed in step ", h("a", { href: functionHref(failed.function) }, `“${failed.step}” of ${failed.function}`), status.at ? `, behind its last checkpoint, “${plain(status.at)}”.` : ", before its first checkpoint.");
}

const at = (chosen, frames) => (chosen === undefined ? frames.length - 1 : Math.min(Number(chosen), frames.length - 1));

/** The functions on the call stack, the chosen one with its source. */
function stack(data, id, chosen) {
  const { fiber, functions, positions } = data;
  const { frames, status } = fiber;
  const known = new Map(functions.map((fn) => [fn.name, fn]));
  const n = at(chosen, frames);
  const frame = frames[n];
  const fn = known.get(frame?.function ?? status.name);
  const locals = frame ? frame.locals : fiber.arguments;
  const link = (cut) => fibersHref({ name: fn.name, text: "", at: cut });
  return h(
    "section",
    { class: "card flush" },
    frames.length > 1 &&
      h(
        "ol",
        { class: "frames", "aria-label": "Call stack" },
        frames.map((frame, place) =>
          h("li", null, h("a", { href: `${fiberHref(id)}?frame=${place}`, "aria-current": place === n ? "true" : null }, h("b", null, frame.function), " at ", plain(frame.at))),
        ),
      ),
    frame && fn && !frame.is_current && h("p", { class: "note warn" }, "The code has changed since this was stored: the arrow is where the name of the cut point stands now."),
    fn ? sourceView(fn, { frame, locals, now: now(data, fn), innermost: n === frames.length - 1, positions: positions.filter((position) => position.name === fn.name), link }) : h("p", { class: "note" }, status.is_closure ? "A closure has no cut points: only its stash is stored." : `This process does not know the function “${frame?.function ?? status.name}”.`),
  );
}

/** What a person has made of a fiber. */
function made({ edit, fork, import: moved }) {
  if (fork) return ["forked from ", h("a", { href: fiberHref(fork.of) }, fork.of), ` at checkpoint ${fork.checkpoint}`];
  if (moved) return `imported, was ${moved.of}`;
  const text = ({ name, before, after, is_secret }) => (is_secret ? `${name} (secret)` : `${name}: ${preview({ value: before }, 24)} → ${preview({ value: after }, 24)}`);
  return [`edited${edit.by ? ` by ${edit.by}` : ""}: `, h("span", { class: "mono" }, edit.changes.map(text).join(", "))];
}

/** The kept checkpoints, the newest first. */
function timeline(id, history, shown) {
  if (history.length === 0) return null;
  const longest = Math.max(...history.map((entry) => entry.took_ms), 1);
  return h(
    "section",
    { class: "card" },
    h("h2", null, "Timeline", h("span", { class: "count" }, history.length === 100 ? "the last 100 checkpoints" : plural(history.length, "checkpoint"))),
    h(
      "ol",
      { class: "timeline" },
      history.toReversed().map((entry) =>
        h(
          "li",
          { "aria-current": entry.number === shown ? "true" : null },
          h("span", { class: "n mono" }, h("a", { href: `${fiberHref(id)}?at=${entry.number}`, "aria-label": `checkpoint ${entry.number}` }, entry.number)),
          h("b", null, entry.origin ? made(entry.origin) : plain(entry.at)),
          h("span", { class: "note mono", title: "new or changed locals" }, entry.origin ? "" : entry.changed.join(", ")),
          h("span", null, entry.is_resumed && h("em", null, "entered "), entry.failed_attempts > 0 && h("span", { class: "badge parked" }, `${plural(entry.failed_attempts, "failed attempt")}`)),
          h("meter", { min: 0, max: longest, value: entry.took_ms, title: span(entry.took_ms) }),
          h("span", { class: "n quiet" }, span(entry.took_ms)),
          age(entry.stored_ms),
        ),
      ),
    ),
  );
}

function values(fiber, chosen, past) {
  const { frames } = fiber;
  const n = at(chosen, frames);
  const frame = frames[n];
  const before = past?.before?.[n]?.function === frame?.function ? past?.before?.[n]?.locals : undefined;
  const gone = before?.filter((old) => !frame.locals.some((local) => local.name === old.name)) ?? [];
  const old = (local, keep) => keep === "local" && before?.find((old) => old.name === local.name && JSON.stringify(old) !== JSON.stringify(local));
  const isNew = (local, keep) => keep === "local" && before && !before.some((old) => old.name === local.name);
  const table = (title, locals, keep) =>
    locals.length > 0 &&
    h(
      "section",
      { class: "card" },
      h("h2", null, title),
      h("dl", { class: "values" }, locals.map((local) => [h("dt", { class: `mono role-${local.role}`, title: local.name }, nameOf(local)), h("dd", { "data-keep": `${keep} ${local.name}`, class: old(local, keep) || isNew(local, keep) ? "changed" : null }, old(local, keep) && h("del", null, preview(old(local, keep), 60)), tree(local))]), keep === "local" && gone.map((local) => [h("dt", { class: "mono" }, nameOf(local)), h("dd", null, h("del", null, preview(local, 60)))])),
    );
  return [
    table(frames.length > 1 ? `Locals of ${frame.function}` : "Locals", frame?.locals ?? [], "local"),
    table("Branches that have finished", fiber.branches, "branch"),
    fiber.result && h("section", { class: "card" }, h("h2", null, "Result"), tree(fiber.result, true)),
    fiber.stash && h("section", { class: "card" }, h("h2", null, "Stash"), tree(fiber.stash, true)),
    table("Arguments", fiber.arguments, "argument"),
  ];
}

/** What it was sent and has not received; once it has ended, what it will never receive unless it failed and is resumed. */
function messages({ status, messages }, hasActions, refresh) {
  if (messages.length === 0) return null;
  const isFinal = status.state === "completed" || status.state === "cancelled";
  const discards = hasActions && status.state !== "running";
  return h(
    "section",
    { class: "card" },
    h("h2", null, isFinal ? "Unread messages" : "Messages not received", h("span", { class: "count" }, messages.length === 100 ? "100 or more" : messages.length)),
    isFinal && h("p", { class: "quiet" }, "It ended before it had received them: ", (status.unread ?? []).map(({ topic, messages }) => `${topic} (${messages})`).join(", "), "."),
    h(
      "ul",
      { class: "ops" },
      messages.map((message) =>
        h(
          "li",
          { "data-message": message.number },
          h("div", { class: "what" }, h("b", null, message.topic), " ", h("span", { class: "quiet" }, "sent ", age(message.sent_ms))),
          h("p", { class: "mono" }, preview(message, 120)),
          discards && discard(status.id, message, refresh),
        ),
      ),
    ),
  );
}

/** The newest items of its output streams. */
function streams({ streams }) {
  if (streams.length === 0) return null;
  return h(
    "section",
    { class: "card" },
    h("h2", null, "Streams"),
    streams.map((stream) => [h("h3", { class: "mono" }, stream.name, h("span", { class: "count" }, plural(stream.items, "item"))), h("ol", { class: "items", start: stream.items - stream.newest.length }, stream.newest.map((item) => h("li", { class: "mono" }, preview(item, 90))))]),
  );
}

function facts(status) {
  const rows = [
    ["Accepted", age(status.created_ms)],
    ["Last change of state", age(status.changed_ms)],
    ["Last checkpoint", status.saved_ms && [age(status.saved_ms), ` at “${plain(status.at ?? "")}”, number ${status.checkpoints}`]],
    ["Ended", status.finished_ms && [age(status.finished_ms), ` after ${span(status.finished_ms - status.created_ms)}`]],
    ["Attempt", status.step && `${status.step.attempt} of “${status.step.name}”`],
    ["Progress", status.progress !== null && tree({ value: status.progress })],
    [isOver(status) ? null : "In this state for", !isOver(status) && lasted(status)],
    ["Deaths of its process", status.deaths > 0 && `${status.deaths} since the last progress`],
    ["Metadata", status.metadata !== null && tree({ value: status.metadata })],
    ["As JSON", !status.is_closure && h("a", { href: `api/fibers/${encodeURIComponent(status.id)}/export`, download: `${status.id}.json` }, "Export")],
  ];
  return h("section", { class: "card" }, h("h2", null, "Facts"), h("dl", null, rows.filter(([, value]) => value).map(([name, value]) => [h("dt", null, name), h("dd", null, value)])));
}

function family(status, { fibers: children, more }) {
  if (children.length === 0 && !(status.wait?.fibers.length > 0)) return null;
  const waitsFor = new Set(status.wait?.fibers ?? []);
  return h(
    "section",
    { class: "card" },
    h("h2", null, "Children", h("span", { class: "count" }, plural(children.length, "child", more, "children"))),
    h(
      "ul",
      { class: "family" },
      children.map((child) =>
        h(
          "li",
          null,
          h("p", null, badge(child.state), " ", h("a", { href: fiberHref(child.id) }, child.name, waitsFor.has(child.id) && h("em", null, " waited for")), " ", age(child.finished_ms ?? child.changed_ms)),
          child.arguments.length > 0 && h("p", { class: "mono quiet" }, child.arguments.map((argument) => `${argument.name}: ${preview(argument, 48)}`).join(", ")),
          child.reason && h("p", { class: "quiet" }, child.reason),
        ),
      ),
    ),
    more && h("a", { href: fibersHref({ parent: status.id }) }, "All children"),
  );
}

export function operations(title, ops, hasActions, refresh) {
  const doubtful = title.startsWith("In doubt");
  return h(
    "section",
    { class: doubtful ? "card doubt" : "card" },
    h("h2", null, title),
    h(
      "ul",
      { class: "ops" },
      ops.map((op) =>
        h(
          "li",
          { "data-op": op.id },
          h("div", { class: "what" }, h("b", null, op.step), " ", h("span", { class: `badge op-${op.state}` }, op.state === "started" ? "outcome unknown" : op.state.replace("_", " ")), op.resolved && h("em", null, " by a person")),
          h("div", { class: "quiet" }, "id ", copyable(op.id, `${op.id.slice(0, 12)}…`), op.key !== null && [" key ", h("span", { class: "mono" }, JSON.stringify(op.key))], " began ", age(op.started_ms)),
          op.error && h("p", { class: "mono" }, op.error),
          op.result !== null && h("p", { class: "mono" }, preview({ value: op.result }, 120)),
          doubtful && hasActions && resolveOp(op, refresh),
        ),
      ),
    ),
    doubtful && !hasActions && h("p", { class: "quiet" }, `This inspector is read-only: ${plural(ops.length, "operation")} can be resolved with the command “forever”.`),
  );
}
