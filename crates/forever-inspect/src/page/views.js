// The views besides that of one fiber.
import { actionsOf, bulk, resolveOp } from "./actions.js";
import { api, copyable, h } from "./dom.js";
import { STATES, age, badge, lasted, plural, preview, sentence, span } from "./format.js";
import { layoutCard } from "./layout.js";
import { fiberHref, fibersHref, functionHref, query } from "./links.js";
import { sourceView } from "./source.js";
import { groupsOf, lateOf, since, troubles } from "./troubles.js";

const empty = (text) => h("p", { class: "empty" }, text);

/** The heads of the columns of a list. */
export const heads = (...names) => h("li", { class: "heads", "aria-hidden": "true" }, names.map((name) => h("span", null, name)));

/** Rows of fibers. */
export function list(fibers) {
  return h(
    "ul",
    { class: "fibers" },
    heads("State", "Function", "Key or id", "What it does or needs", "Lasted", "Last change"),
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
          h("span", { class: "note" }, sentence(fiber)),
          h("span", { class: "lasted", title: fiber.finished_ms === null ? "in this state" : "from its acceptance to its end" }, lasted(fiber)),
          age(fiber.finished_ms ?? fiber.saved_ms ?? fiber.changed_ms),
        ),
      ),
    ),
  );
}

const card = (title, count, href, ...children) =>
  h("section", { class: "card" }, h("h2", null, href ? h("a", { href }, title) : title, count !== null && h("span", { class: "count" }, count)), children);

const OVERVIEW = ["failed", "parked", "interrupted", "running", "waiting", "pending", "completed", "cancelled"];

export const overview = {
  load: () => api("overview"),
  render(data, _, { refresh }) {
    const total = {};
    for (const { state, fibers } of data.counts) total[state] = (total[state] ?? 0) + fibers;
    const sum = (...states) => states.reduce((sum, state) => sum + (total[state] ?? 0), 0);
    const of = (kind) => data.troubles.filter((group) => group.kind === kind);
    const all = (groups) => [groups.reduce((sum, { count }) => sum + count, 0), groups.some(({ at_least }) => at_least)];
    const [turns, moreTurns] = all(of("turn"));
    const [retrying, moreRetrying] = all(of("retrying"));
    const isBad = sum("failed", "parked", "interrupted") > 0 || data.in_doubt.length > 0 || turns > 0;
    const late = lateOf(data);
    const worst = isBad ? "bad" : retrying > 0 || late.length > 0 || data.schedules.length > 0 || data.queues.length > 0 ? "warn" : "good";
    const parts = [
      data.in_doubt.length > 0 && plural(data.in_doubt.length, "operation of unknown outcome", data.in_doubt_more, "operations of unknown outcome"),
      total.failed > 0 && `${plural(total.failed, "fiber")} failed`,
      total.parked > 0 && `${plural(total.parked, "fiber")} parked`,
      total.interrupted > 0 && `${plural(total.interrupted, "fiber")} interrupted`,
      turns > 0 && `${plural(turns, "failed turn", moreTurns)} of chats`,
      retrying > 0 && `${retrying.toLocaleString("en")}${moreRetrying ? " or more" : ""} retrying`,
      data.schedules.length > 0 && `${plural(data.schedules.length, "schedule", data.schedules_more)} failing`,
      data.queues.length > 0 && plural(data.queues.length, "queue of unread messages", false, "queues of unread messages"),
      late.length > 0 && "some are ready and not started",
    ].filter(Boolean);
    const title = worst === "bad" ? "Needs you" : worst === "warn" ? "Keep an eye on it" : "All is well";
    return [
      h("section", { class: `verdict big ${worst}` }, h("h1", null, title), h("p", { class: "sentence" }, parts.join(", ") || `${plural(sum("running", "pending"), "fiber")} running, ${plural(sum("waiting"), "fiber")} waiting, nothing failed`), since({ troubles: groupsOf(data) })),
      data.in_doubt.length > 0 &&
        card("Unknown outcomes", `${data.in_doubt.length}${data.in_doubt_more ? " or more" : ""}`, "#/ops", h("p", { class: "remedy" }, "Look at the other side whether each was carried out, then say so here. Its fiber goes on from there."), inbox(data.in_doubt, data.actions, refresh)),
      troubles(data, refresh),
      h(
        "ul",
        { class: "states" },
        OVERVIEW.map((state) => h("li", { class: total[state] ? "" : "none" }, h("a", { href: fibersHref({ state }) }, h("b", null, (total[state] ?? 0).toLocaleString("en")), h("span", { class: `dot ${state}` }), STATES[state]))),
      ),
      h(
        "div",
        { class: "halves" },
        data.oldest_waiting.length > 0 && card("Waiting longest", (total.waiting ?? 0).toLocaleString("en"), fibersHref({ state: "waiting", oldest_first: "true" }), list(data.oldest_waiting)),
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
              h("th", null, h("a", { href: functionHref(name) }, name)),
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
    data.ops.length ? h("section", { class: "card" }, h("h2", null, h("span", { class: "count" }, plural(data.ops.length, "operation", data.more))), inbox(data.ops, data.actions, refresh)) : empty("None. Every effect that began has an outcome."),
  ],
};

/** Conditions as they are in addresses; `within` is a name of the times below. */
const FILTERS = ["state", "name", "agent", "parent", "key", "text", "metadata", "in_doubt", "retrying", "within"];

const HOUR = 3_600_000;
const WITHIN = { hour: ["Last hour", HOUR], day: ["Last day", 24 * HOUR], week: ["Last week", 168 * HOUR] };

/** The conditions as the API has them. */
function conditions({ within, ...filter }) {
  const [, length] = WITHIN[within] ?? [];
  return length ? { ...filter, changed_from_ms: Date.now() - length } : filter;
}

/** Pages that “more” has added, by the list they belong to. */
let added = { of: "", fibers: [], next: null };

export const fibers = {
  async load(params) {
    const filter = Object.fromEntries([...FILTERS, "oldest_first"].map((name) => [name, params[name]]));
    const of = query(filter);
    const data = await api(`fibers?${query(conditions(filter))}`);
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
        const page = await api(`fibers?${query({ ...conditions(Object.fromEntries(new URLSearchParams(data.of))), after: JSON.stringify(after) })}`);
        found = page.fibers;
        after = page.next;
        added = { of: data.of, fibers: [...added.fibers, ...found], next: after };
      } while (found.length === 0 && after !== null);
      refresh();
    };
    const set = (name, value) => go(`#/fibers?${query({ ...Object.fromEntries([...FILTERS, "oldest_first"].map((f) => [f, params[f]])), [name]: value })}`);
    const states = (params.state ?? "").split(",").filter(Boolean);
    const toggle = (state) => set("state", (states.includes(state) ? states.filter((s) => s !== state) : [...states, state]).join(","));
    const filter = conditions(Object.fromEntries(FILTERS.map((name) => [name, params[name]]).filter(([, value]) => value)));
    for (const flag of ["in_doubt", "retrying"]) if (filter[flag]) filter[flag] = true;
    const isSearch = ["text", "metadata", "in_doubt", "retrying", "within"].some((name) => params[name]);
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
        h(
          "select",
          { "aria-label": "Last change", onchange: (event) => set("within", event.target.value) },
          h("option", { value: "" }, "Any time"),
          Object.entries(WITHIN).map(([name, [title]]) => h("option", { value: name, selected: name === params.within }, title)),
        ),
        h("button", { type: "button", class: "chip", "aria-pressed": String(params.oldest_first === "true"), onclick: () => set("oldest_first", params.oldest_first === "true" ? "" : "true") }, "Oldest first"),
        ["agent", "parent", "key", "text", "metadata", "in_doubt", "retrying"].filter((name) => params[name]).map((name) => h("button", { type: "button", class: "chip set", title: "Remove this condition", onclick: () => set(name, "") }, `${name.replace("_", " ")}: ${params[name]} ✕`)),
      ),
      actions && Object.keys(filter).length > 0 && h("div", { class: "buttons" }, ["resume", "restart", "cancel"].map((action) => h("button", { type: "button", class: action === "cancel" ? "danger" : "", onclick: () => bulk(action, filter, refresh) }, `${action[0].toUpperCase()}${action.slice(1)} all …`))),
      h("p", { class: "quiet" }, plural(all.length, "fiber", next !== null), params.oldest_first === "true" ? ", the oldest first" : ", the newest first"),
      all.length ? h("section", { class: "card flush" }, list(all)) : empty(next === null ? "No fiber agrees with this filter." : "None so far: there are more fibers to search."),
      next !== null && h("button", { type: "button", class: "more", onclick: more }, isSearch ? "Search further" : "More"),
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
        { class: "fibers of-functions" },
        heads("Function", "Version", "Source", "Fibers by state"),
        data.functions.map((fn) =>
          h(
            "li",
            null,
            h(
              "a",
              { href: functionHref(fn.name), "data-row": fn.name },
              h("b", null, fn.name),
              h("span", { class: "quiet" }, fn.version > 0 ? `version ${fn.version}` : ""),
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

/** The next page of a list, by the names of its place. */
const nextPage = (view, next) => next && h("a", { class: "more", href: `#/${view}?${query(next)}` }, "Next page");

export const agents = {
  load: (params) => api(`agents?${query({ ...params, limit: 100 })}`),
  render: (data) => [
    h("h1", null, "Agents"),
    h("p", { class: "quiet" }, "Those that have a state or are kept awake, by class and name. ", plural(data.agents.length, "agent", data.next !== null), "."),
    data.agents.length
      ? h(
          "section",
          { class: "card flush" },
          h(
            "ul",
            { class: "fibers of-agents" },
            heads("Agent", "State", "", "Last change"),
            data.agents.map((agent) =>
              h(
                "li",
                null,
                h(
                  "a",
                  { href: fibersHref({ agent: `${agent.class}/${agent.name}` }), "data-row": `${agent.class}/${agent.name}` },
                  h("b", null, `${agent.class}/${agent.name}`),
                  h("span", { class: "note mono" }, agent.state ? preview(agent.state, 90) : ""),
                  h("span", null, agent.awake_ms !== null && h("span", { class: "badge running" }, "awake"), agent.deaths > 0 && h("span", { class: "badge failed" }, plural(agent.deaths, "death"))),
                  age(agent.changed_ms),
                ),
              ),
            ),
          ),
        )
      : empty("No agent has a state."),
    nextPage("agents", data.next),
  ],
};

function scheduleRows(schedules) {
  return h(
    "ul",
    { class: "fibers of-schedules" },
    heads("State", "Schedule", "Agent", "Timing, or the last error", "Next run"),
    schedules.map((schedule) => {
      const when = schedule.running_ms !== null ? "runs now" : schedule.next_ms === null ? "none" : age(schedule.next_ms);
      const timing = schedule.kind === "every" ? `every ${span(Number(schedule.timing))}` : schedule.kind === "cron" ? schedule.timing : "once";
      return h(
        "li",
        null,
        h(
          "a",
          { href: fibersHref({ agent: `${schedule.class}/${schedule.agent}` }), "data-row": schedule.id },
          h("span", { class: `badge ${schedule.next_ms === null ? "failed" : hasFailed(schedule) ? "parked" : "waiting"}` }, schedule.next_ms === null ? "Set aside" : hasFailed(schedule) ? "Failed" : "Scheduled"),
          h("b", null, schedule.name),
          h("span", { class: "key mono" }, `${schedule.class}/${schedule.agent}`),
          h("span", { class: "note" }, schedule.error ?? `${timing}, ${preview(schedule.payload, 40)}`),
          h("span", null, when),
        ),
      );
    }),
  );
}

const hasFailed = ({ next_ms, attempts, error }) => next_ms === null || attempts > 0 || error !== null;

export const schedules = {
  load: ({ failed, ...params }) => api(`schedules?${query({ ...params, limit: failed ? 1000 : 100 })}`),
  render(data, { failed }, { go }) {
    const shown = failed ? data.schedules.filter(hasFailed) : data.schedules;
    return [
      h("h1", null, "Schedules"),
      h("div", { class: "filters" }, h("button", { type: "button", class: "chip", "aria-pressed": String(failed === "true"), onclick: () => go(failed ? "#/schedules" : "#/schedules?failed=true") }, "Failed only"), h("span", { class: "quiet" }, plural(shown.length, "schedule", data.next !== null))),
      shown.length ? h("section", { class: "card flush" }, scheduleRows(shown)) : empty(failed ? "No schedule fails." : "No agent has a schedule."),
      nextPage("schedules", data.next && { after: data.next, failed }),
    ];
  },
};
