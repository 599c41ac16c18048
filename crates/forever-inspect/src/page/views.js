// The views besides that of one fiber.
import { actionsOf, bulk, resolveOp } from "./actions.js";
import { api, copyable, h } from "./dom.js";
import { STATES, age, badge, plural, preview, relative, sentence, span } from "./format.js";
import { layoutCard } from "./layout.js";
import { sourceView } from "./source.js";

const query = (values) => new URLSearchParams(Object.entries(values).filter(([, value]) => value)).toString();
/** A number of which there may be more. */
const atLeast = (number, isMore) => (isMore ? `${number} or more` : number);

export const fiberHref = (id) => `#/fiber/${encodeURIComponent(id)}`;
export const fibersHref = ({ at, ...filter }) => `#/fibers?${query(filter)}`;

const empty = (text) => h("p", { class: "empty" }, text);

/** Rows of fibers. */
export function list(fibers, { note = sentence } = {}) {
  return h(
    "ul",
    { class: "fibers" },
    fibers.map((fiber) =>
      h(
        "li",
        null,
        h(
          "a",
          { href: fiberHref(fiber.id), "data-row": fiber.id },
          badge(fiber.state),
          h("b", null, fiber.name),
          h("span", { class: "key mono" }, fiber.key ?? (fiber.agent ? fiber.agent.join("/") : fiber.id.slice(-12))),
          h("span", { class: "note" }, note(fiber)),
          age(fiber.finished_ms ?? fiber.saved_ms ?? fiber.changed_ms),
        ),
      ),
    ),
  );
}

const card = (title, count, href, ...children) =>
  h("section", { class: "card" }, h("h2", null, href ? h("a", { href }, title) : title, count !== null && h("span", { class: "count" }, count)), children);

export const overview = {
  load: () => api("overview"),
  render(data, _, { refresh }) {
    const total = {};
    for (const { state, fibers } of data.counts) total[state] = (total[state] ?? 0) + fibers;
    const sum = (...states) => states.reduce((sum, state) => sum + (total[state] ?? 0), 0);
    const stopped = sum("failed", "parked", "interrupted");
    const late = data.oldest_pending.filter((fiber) => Date.now() - fiber.changed_ms > 30_000);
    const worst = stopped > 0 || data.in_doubt.length > 0 ? "bad" : data.retrying.length > 0 || late.length > 0 || data.schedules.length > 0 ? "warn" : "good";
    const parts = [
      data.in_doubt.length > 0 && `${data.in_doubt_more ? "at least " : ""}${plural(data.in_doubt.length, "operation of unknown outcome", "operations of unknown outcome")}`,
      total.failed > 0 && `${plural(total.failed, "fiber")} failed`,
      total.parked > 0 && `${plural(total.parked, "fiber")} parked`,
      total.interrupted > 0 && `${plural(total.interrupted, "fiber")} interrupted`,
      data.retrying.length > 0 && `${atLeast(data.retrying.length, data.retrying_more)} retrying`,
      late.length > 0 && "some are ready and not started",
      data.schedules.length > 0 && `${plural(data.schedules.length, "schedule")} failing`,
    ].filter(Boolean);
    const title = worst === "bad" ? "Needs you" : worst === "warn" ? "Keep an eye on it" : "All is well";
    return [
      h("section", { class: `verdict big ${worst}` }, h("h1", null, title), h("p", { class: "sentence" }, parts.join(", ") || `${plural(sum("running", "pending"), "fiber")} running, ${plural(sum("waiting"), "fiber")} waiting, nothing failed`)),
      h(
        "ul",
        { class: "states" },
        ["failed", "parked", "interrupted", "running", "waiting", "pending", "completed", "cancelled"].map((state) =>
          h("li", { class: total[state] ? "" : "none" }, h("a", { href: fibersHref({ state }) }, h("b", null, (total[state] ?? 0).toLocaleString("en")), h("span", { class: `dot ${state}` }), STATES[state])),
        ),
      ),
      data.in_doubt.length > 0 &&
        card("Unknown outcomes", atLeast(data.in_doubt.length, data.in_doubt_more), "#/ops", inbox(data.in_doubt, data.actions, refresh)),
      data.reasons.length > 0 &&
        card(
          "Stopped, by reason",
          stopped,
          fibersHref({ state: "failed,parked,interrupted" }),
          h(
            "ul",
            { class: "reasons" },
            data.reasons.map((group) =>
              h(
                "li",
                null,
                h(
                  "a",
                  { href: group.fibers === 1 ? fiberHref(group.example) : fibersHref({ state: group.state, name: group.name }), "data-row": group.example },
                  badge(group.state),
                  h("b", null, group.name),
                  h("span", { class: "note" }, group.reason),
                  h("span", { class: "count" }, group.fibers === 1 ? "1 fiber" : `${atLeast(group.fibers, group.at_least)} fibers`),
                ),
              ),
            ),
          ),
        ),
      h(
        "div",
        { class: "halves" },
        data.retrying.length > 0 && card("Retrying", atLeast(data.retrying.length, data.retrying_more), fibersHref({ state: "running" }), list(data.retrying)),
        late.length > 0 && card("Ready, and not started", late.length, fibersHref({ state: "pending", oldest_first: "true" }), list(late)),
        data.oldest_waiting.length > 0 && card("Waiting longest", total.waiting ?? 0, fibersHref({ state: "waiting", oldest_first: "true" }), list(data.oldest_waiting)),
        data.schedules.length > 0 && card("Schedules that fail", data.schedules.length, "#/schedules", scheduleRows(data.schedules)),
        card("Newest", null, "#/fibers", data.recent.length ? list(data.recent) : empty("No fiber was spawned yet.")),
        byFunction(data.counts),
      ),
    ];
  },
};

/** Counts by function, each state a column. */
function byFunction(counts) {
  if (counts.length === 0) return null;
  const states = Object.keys(STATES).filter((state) => counts.some((count) => count.state === state));
  const names = [...new Set(counts.map((count) => count.name))];
  const cell = (name, state) => counts.find((count) => count.name === name && count.state === state)?.fibers;
  return h(
    "section",
    { class: "card" },
    h("h2", null, h("a", { href: "#/functions" }, "Functions")),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        null,
        h("thead", null, h("tr", null, h("th", null, "Function"), states.map((state) => h("th", { class: "n" }, STATES[state])))),
        h(
          "tbody",
          null,
          names.map((name) =>
            h(
              "tr",
              null,
              h("th", null, h("a", { href: `#/function/${encodeURIComponent(name)}` }, name)),
              states.map((state) => h("td", { class: "n" }, cell(name, state) ? h("a", { href: fibersHref({ name, state }) }, cell(name, state).toLocaleString("en")) : h("span", { class: "quiet" }, "·"))),
            ),
          ),
        ),
      ),
    ),
  );
}

/** Operations of unknown outcome, each with its fiber. */
function inbox(items, hasActions, refresh) {
  return h(
    "ul",
    { class: "ops" },
    items.map(({ op, fiber }) =>
      h(
        "li",
        { "data-op": op.id },
        h("div", null, badge(fiber.state), " ", h("a", { href: fiberHref(fiber.id), "data-row": fiber.id }, h("b", null, fiber.name), " · ", h("b", null, op.step)), fiber.key && h("span", { class: "mono quiet" }, ` ${fiber.key}`)),
        h("div", { class: "quiet" }, "began ", age(op.started_ms), ", id ", copyable(op.id, `${op.id.slice(0, 12)}…`), op.key !== null && [" key ", h("span", { class: "mono" }, JSON.stringify(op.key))]),
        hasActions && resolveOp(op, refresh),
      ),
    ),
  );
}

export const ops = {
  load: () => api("ops"),
  render: (data, _, { refresh }) => [
    h("h1", null, "Unknown outcomes"),
    h("p", { class: "quiet" }, "Effects that began and whose end was never stored: a process died in them. They may have been carried out, so none is repeated until a person has looked."),
    data.ops.length ? h("section", { class: "card" }, inbox(data.ops, data.actions, refresh)) : empty("None. Every effect that began has an outcome."),
  ],
};

const FILTERS = ["state", "name", "agent", "parent", "key", "text", "metadata", "in_doubt"];

/** Pages that “more” has added, by the list they belong to. */
let added = { of: "", fibers: [], next: null };

export const fibers = {
  async load(params) {
    const filter = Object.fromEntries([...FILTERS, "oldest_first"].map((name) => [name, params[name]]));
    const of = query(filter);
    const data = await api(`fibers?${of}`);
    if (added.of !== of) added = { of, fibers: [], next: null };
    return { ...data, of, functions: (await api("functions")).functions.map((fn) => fn.name) };
  },
  render(data, params, { refresh, go, actions }) {
    const seen = new Set(data.fibers.map((fiber) => fiber.id));
    const all = [...data.fibers, ...added.fibers.filter((fiber) => !seen.has(fiber.id))];
    const next = added.fibers.length || added.next !== null ? added.next : data.next;
    const more = async (event) => {
      event.target.disabled = true;
      let after = next;
      let found = [];
      // A search looks at a stretch of fibers at a time, and may find none in several.
      do {
        const page = await api(`fibers?${query({ ...Object.fromEntries(new URLSearchParams(data.of)), after: JSON.stringify(after) })}`);
        found = page.fibers;
        after = page.next;
        added = { of: data.of, fibers: [...added.fibers, ...found], next: after };
      } while (found.length === 0 && after !== null);
      refresh();
    };
    const set = (name, value) => go(`#/fibers?${query({ ...Object.fromEntries([...FILTERS, "oldest_first"].map((f) => [f, params[f]])), [name]: value })}`);
    const states = (params.state ?? "").split(",").filter(Boolean);
    const toggle = (state) => set("state", (states.includes(state) ? states.filter((s) => s !== state) : [...states, state]).join(","));
    const filter = Object.fromEntries(FILTERS.map((name) => [name, params[name]]).filter(([, value]) => value));
    if (filter.in_doubt) filter.in_doubt = true;
    return [
      h("h1", null, "Fibers"),
      h(
        "div",
        { class: "filters" },
        h("div", { class: "chips", role: "group", "aria-label": "States" }, Object.keys(STATES).map((state) => h("button", { type: "button", class: `chip ${state}`, "aria-pressed": String(states.includes(state)), onclick: () => toggle(state) }, STATES[state]))),
        h(
          "select",
          { "aria-label": "Function", onchange: (event) => set("name", event.target.value) },
          h("option", { value: "" }, "All functions"),
          [...new Set([...data.functions, params.name].filter(Boolean))].map((name) => h("option", { value: name, selected: name === params.name }, name)),
        ),
        h("button", { type: "button", class: "chip", "aria-pressed": String(params.oldest_first === "true"), onclick: () => set("oldest_first", params.oldest_first === "true" ? "" : "true") }, "Oldest first"),
        ["agent", "parent", "key", "text", "metadata", "in_doubt"].filter((name) => params[name]).map((name) => h("button", { type: "button", class: "chip set", title: "Remove this condition", onclick: () => set(name, "") }, `${name.replace("_", " ")}: ${params[name]} ✕`)),
      ),
      actions && Object.keys(filter).length > 0 && h("div", { class: "buttons" }, ["resume", "restart", "cancel"].map((action) => h("button", { type: "button", class: action === "cancel" ? "danger" : "", onclick: () => bulk(action, filter, refresh) }, `${action[0].toUpperCase()}${action.slice(1)} all …`))),
      all.length ? h("section", { class: "card flush" }, list(all)) : empty("No fiber agrees with this filter."),
      next !== null && h("button", { type: "button", class: "more", onclick: more }, params.text || params.metadata ? "Search older fibers" : "More"),
    ];
  },
};

export const functions = {
  load: () => api("functions"),
  render: (data) => [
    h("h1", null, "Functions"),
    h("p", { class: "quiet" }, "Those that this process has registered, and those that were called."),
    h(
      "section",
      { class: "card flush" },
      h(
        "ul",
        { class: "fibers" },
        data.functions.map((fn) =>
          h(
            "li",
            null,
            h(
              "a",
              { href: `#/function/${encodeURIComponent(fn.name)}`, "data-row": fn.name },
              h("b", null, fn.name),
              fn.version > 0 && h("span", { class: "quiet" }, `version ${fn.version}`),
              h("span", { class: "note mono" }, fn.file ? `${fn.file}:${fn.line}` : ""),
              h("span", { class: "tally" }, Object.entries(fn.fibers).map(([state, n]) => h("span", { title: STATES[state] }, h("span", { class: `dot ${state}` }), n.toLocaleString("en")))),
            ),
          ),
        ),
      ),
    ),
  ],
};

export const fn = {
  load: ({ name }) => api(`functions/${encodeURIComponent(name)}`),
  render(data, { name }) {
    const waiting = data.positions.reduce((sum, position) => sum + position.fibers, 0);
    const unfinished = () => fibersHref({ name, state: "running,waiting,pending,interrupted,parked" });
    const names = new Set(data.function.cuts.map((cut) => cut.name));
    const elsewhere = data.positions.filter(({ at }) => at !== null && !names.has(at));
    return [
      h("h1", null, name),
      h("p", { class: "quiet" }, `${plural(waiting, "unfinished fiber")}. `, h("a", { href: fibersHref({ name }) }, "All its fibers"), ". Layout ", copyable(data.function.layout, data.function.layout.slice(0, 12))),
      h("section", { class: "card flush" }, sourceView(data.function, { positions: data.positions, link: unfinished })),
      layoutCard(data.function, data.positions, unfinished),
      elsewhere.length > 0 && h("section", { class: "card" }, h("h2", null, "At steps of other code"), h("ul", null, elsewhere.map((position) => h("li", null, plural(position.fibers, "fiber"), " at ", h("b", null, position.at))))),
    ];
  },
};

export const agents = {
  load: () => api("agents?limit=200"),
  render: (data) => [
    h("h1", null, "Agents"),
    h("p", { class: "quiet" }, "Those that have a state or are kept awake, by class and name."),
    data.agents.length
      ? h(
          "section",
          { class: "card flush" },
          h(
            "ul",
            { class: "fibers" },
            data.agents.map((agent) =>
              h("li", null, h("a", { href: fibersHref({ agent: `${agent.class}/${agent.name}` }), "data-row": `${agent.class}/${agent.name}` }, h("b", null, `${agent.class}/${agent.name}`), h("span", { class: "note mono" }, agent.state ? preview(agent.state, 90) : ""), agent.awake_ms !== null && h("span", { class: "badge running" }, "awake"), agent.deaths > 0 && h("span", { class: "badge failed" }, `${agent.deaths} deaths`), age(agent.changed_ms))),
            ),
          ),
        )
      : empty("No agent has a state."),
    data.next && h("p", { class: "quiet" }, "The first 200 are shown."),
  ],
};

function scheduleRows(schedules) {
  return h(
    "ul",
    { class: "fibers" },
    schedules.map((schedule) => {
      const when = schedule.running_ms !== null ? "runs now" : schedule.next_ms === null ? "set aside: ask for it again" : relative(schedule.next_ms);
      const timing = schedule.kind === "every" ? `every ${span(Number(schedule.timing))}` : schedule.kind === "cron" ? schedule.timing : "once";
      return h(
        "li",
        null,
        h(
          "a",
          { href: fibersHref({ agent: `${schedule.class}/${schedule.agent}` }), "data-row": schedule.id },
          h("span", { class: `badge ${schedule.next_ms === null ? "failed" : schedule.attempts > 0 ? "parked" : "waiting"}` }, schedule.next_ms === null ? "Set aside" : schedule.attempts > 0 ? `${schedule.attempts} failed` : "Scheduled"),
          h("b", null, schedule.name),
          h("span", { class: "key mono" }, `${schedule.class}/${schedule.agent}`),
          h("span", { class: "note" }, schedule.error ?? `${timing}, ${preview(schedule.payload, 40)}`),
          h("span", null, when),
        ),
      );
    }),
  );
}

export const schedules = {
  load: () => api("schedules?limit=200"),
  render: (data) => [h("h1", null, "Schedules"), data.schedules.length ? h("section", { class: "card flush" }, scheduleRows(data.schedules)) : empty("No agent has a schedule."), data.next && h("p", { class: "quiet" }, "The first 200 are shown.")],
};

export { actionsOf };
