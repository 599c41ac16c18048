// The page: which view the address names, keys, and what keeps it up to date.
import * as chats from "./chats.js";
import { during, h, toast } from "./dom.js";
import * as fiber from "./fiber.js";
import { relative } from "./format.js";
import { fiberHref } from "./links.js";
import * as views from "./views.js";

const VIEWS = [
  ["", "Overview", views.overview, "o"],
  ["fibers", "Fibers", views.fibers, "f"],
  ["ops", "Unknown", views.ops, "u"],
  ["functions", "Functions", views.functions, "c"],
  ["agents", "Agents", views.agents, "a"],
  ["chats", "Chats", chats.chats, "m"],
  ["schedules", "Schedules", views.schedules, "s"],
];

const main = document.querySelector("main");
const search = document.querySelector("header input");

/** A part of the address; one that was written by hand may have no valid escapes. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** What the address names: a view and its parameters. */
function route() {
  const [path, text = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [first = "", ...rest] = path.split("/");
  const params = Object.fromEntries(new URLSearchParams(text));
  const parts = rest.map(decoded);
  const name = parts.join("/");
  if (first === "fiber") return { view: fiber, tab: "fibers", params: { ...params, id: name } };
  if (first === "function") return { view: views.fn, tab: "functions", params: { ...params, name } };
  if (first === "chat") return { view: chats.chat, tab: "chats", params: { ...params, name, parts } };
  const [tab, , view] = VIEWS.find(([tab]) => tab === first) ?? VIEWS[0];
  return { view, tab, params };
}

let shown = "";
let actions = false;
/** The one question that is under way. */
let question = null;

const go = (hash) => (location.hash === hash ? refresh() : (location.hash = hash));

/**
 * Asks for the view's data, once at a time: on a slow line the answer takes longer than news come, and what is shown is the newest answer
 * that came. What is asked for meanwhile is asked once, behind it. Another view is asked for at once.
 */
function refresh() {
  if (question?.hash === location.hash) {
    question.again ??= question.done.then(refresh);
    return question.again;
  }
  question?.left.abort();
  const mine = (question = { hash: location.hash, left: new AbortController(), again: null, done: null });
  mine.done = show(mine).finally(() => {
    if (question === mine) question = null;
  });
  return mine.done;
}

/** Reads the view's data and shows it, unless it is what is shown already. */
async function show(mine) {
  const { view, tab, params } = route();
  for (const link of document.querySelectorAll("header nav a")) link.toggleAttribute("aria-current", link.dataset.tab === tab);
  try {
    const data = await during(mine.left.signal, () => view.load(params));
    if (mine !== question) return;
    if (data.actions !== undefined) actions = data.actions;
    // The clock alone is no news.
    const text = location.hash + JSON.stringify({ ...data, now_ms: 0 }) + actions;
    if (text === shown && !main.dataset.stale) return;
    const isNew = !shown.startsWith(location.hash + "{");
    shown = text;
    delete main.dataset.stale;
    replace(view.render(data, params, { refresh: again, go, actions }), isNew);
    document.title = `${main.querySelector("h1")?.textContent ?? "Forever"} · Forever`;
  } catch (error) {
    if (mine !== question) return;
    shown = "";
    main.replaceChildren(h("section", { class: "verdict bad" }, h("h1", null, error.status === 404 ? "Not here" : "This cannot be shown"), h("p", { class: "sentence" }, error.message), error.status === 404 && h("p", { class: "remedy" }, "It may have been deleted when its retention ended.")));
  }
}

/** After a command: shown anew, whatever has changed. */
function again() {
  main.dataset.stale = "yes";
  return refresh();
}

/** Puts a view in the place of another, and keeps what is open, where it is scrolled to and what has the focus. */
function replace(children, isNew) {
  const openOnes = new Set([...main.querySelectorAll("[data-keep] details[open], details[data-keep][open]")].map((node) => node.closest("[data-keep]").dataset.keep));
  const row = document.activeElement?.closest?.("[data-row]")?.dataset.row;
  const [left, top] = [main.querySelector(".source")?.scrollLeft ?? 0, scrollY];
  main.replaceChildren(...children.flat(9).filter(Boolean));
  if (isNew) {
    scrollTo(0, 0);
    document.querySelector("#here")?.scrollIntoView({ block: "center" });
    scrollTo(0, 0);
    return;
  }
  for (const node of main.querySelectorAll("[data-keep]")) {
    if (openOnes.has(node.dataset.keep)) (node.matches("details") ? node : node.querySelector("details"))?.setAttribute("open", "");
  }
  if (main.querySelector(".source")) main.querySelector(".source").scrollLeft = left;
  scrollTo(0, top);
  if (row) [...main.querySelectorAll("[data-row]")].find((node) => node.dataset.row === row)?.focus({ preventScroll: true });
}

/** Is something under way that a new view would destroy? */
const isBusy = () => document.querySelector("dialog").open || (getSelection()?.toString() && main.contains(getSelection().anchorNode)) || (document.activeElement?.matches("select") && main.contains(document.activeElement));

let due = null;
/** Asks again a moment after something has happened, once for all that happens until then. */
function soon() {
  due ??= setTimeout(() => {
    due = null;
    if (document.hidden) main.dataset.late = "yes";
    else if (isBusy()) soon();
    else refresh();
  }, 500);
}

function watch() {
  const live = document.querySelector(".live");
  const events = new EventSource("api/events");
  const say = (text, state) => {
    live.textContent = text;
    live.dataset.state = state;
  };
  say("connecting", "wait");
  events.onopen = () => {
    say("live", "on");
    soon();
  };
  events.onmessage = soon;
  events.onerror = () => say("not connected", "off");
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden && main.dataset.late) {
    delete main.dataset.late;
    refresh();
  }
});

setInterval(() => {
  if (document.hidden) return;
  for (const time of document.querySelectorAll("time[data-ms]")) time.textContent = relative(Number(time.dataset.ms));
}, 1000);
// What waits for a time and what no event tells of.
setInterval(() => !document.hidden && !isBusy() && refresh(), 10_000);

function theme(next) {
  if (next) document.documentElement.dataset.theme = next;
  else delete document.documentElement.dataset.theme;
  try {
    next ? localStorage.setItem("forever-theme", next) : localStorage.removeItem("forever-theme");
  } catch {
    // A page without storage keeps it until it is closed.
  }
}
const isDark = () => getComputedStyle(document.documentElement).colorScheme.startsWith("dark") || (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
const toggleTheme = () => theme(isDark() ? "light" : "dark");
try {
  if (["light", "dark"].includes(localStorage.getItem("forever-theme"))) theme(localStorage.getItem("forever-theme"));
} catch {
  // As above.
}
document.querySelector(".theme").addEventListener("click", toggleTheme);

document.querySelector("header nav").append(...VIEWS.map(([tab, title, , key]) => h("a", { href: `#/${tab}`, "data-tab": tab, title: `g ${key}` }, title)));

document.querySelector("header form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = search.value.trim();
  if (!text) return;
  // A whole id or key is opened at once.
  for (const path of [`fibers/${encodeURIComponent(text)}`, `fibers?key=${encodeURIComponent(text)}`]) {
    const answer = await fetch(`api/${path}`).catch(() => null);
    if (!answer?.ok) continue;
    const found = await answer.json();
    const id = found.fiber?.status.id ?? found.fibers?.[0]?.id;
    if (id) return go(fiberHref(id));
  }
  go(`#/fibers?${new URLSearchParams({ text })}`);
});

const HELP = [
  ["/", "search"],
  ["j, k", "next and previous row"],
  ["Enter", "open it"],
  ["g o, g f, g u, g c, g a, g m, g s", "overview, fibers, unknown outcomes, functions, agents, chats, schedules"],
  ["t", "light or dark"],
  ["?", "this list"],
];

let pending = "";
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog").open) return;
  if (event.target.matches("input, textarea, select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const rows = [...main.querySelectorAll("[data-row]")];
  const at = rows.indexOf(document.activeElement);
  if (pending === "g") {
    pending = "";
    const view = VIEWS.find(([, , , key]) => key === event.key);
    if (view) return go(`#/${view[0]}`);
  }
  switch (event.key) {
    case "g":
      pending = "g";
      setTimeout(() => (pending = ""), 1000);
      break;
    case "/":
      event.preventDefault();
      search.select();
      break;
    case "j":
      rows[Math.min(at + 1, rows.length - 1)]?.focus();
      break;
    case "k":
      rows[Math.max(at - 1, 0)]?.focus();
      break;
    case "t":
      toggleTheme();
      break;
    case "?": {
      const dialog = document.querySelector("dialog");
      dialog.replaceChildren(h("h2", null, "Keys"), h("dl", { class: "keys" }, HELP.map(([key, what]) => [h("dt", null, h("kbd", null, key)), h("dd", null, what)])), h("form", { method: "dialog" }, h("button", { class: "primary" }, "Close")));
      dialog.showModal();
      break;
    }
  }
});

addEventListener("hashchange", refresh);
addEventListener("unhandledrejection", (event) => toast(String(event.reason?.message ?? event.reason), true));
watch();
refresh();
