// Chats: their turns and what was said. A message is data: nothing in it is read as markup.
import { api, h } from "./dom.js";
import { age, plural, short, span, tree } from "./format.js";
import { chatHref, fibersHref, query } from "./links.js";
import { heads } from "./views.js";

/** What each state of a turn is called, and which state of a fiber it looks like. */
const TURNS = {
  queued: ["Queued", "pending"],
  running: ["Running", "running"],
  completed: ["Answered", "completed"],
  error: ["Error", "failed"],
  aborted: ["Cancelled", "cancelled"],
  skipped: ["Skipped", "cancelled"],
  interrupted: ["Interrupted", "interrupted"],
};

const turnBadge = (state) => h("span", { class: `badge ${TURNS[state]?.[1] ?? ""}` }, TURNS[state]?.[0] ?? state);

/** What has become of a turn, in one line. */
function noteOf({ reason, error, cancel, deaths, is_continuation }) {
  const why = error && reason && !error.startsWith(reason) ? `${reason} (${error})` : (error ?? reason ?? cancel);
  return [why, is_continuation && "continues the message before it", deaths > 0 && plural(deaths, "death")].filter(Boolean).join(", ");
}

function turnRows(turns, isOfOneChat) {
  return h(
    "ul",
    { class: isOfOneChat ? "fibers of-turns" : "fibers of-chats" },
    isOfOneChat ? heads("State", "Turn", "Why", "Lasted", "Ended") : heads("State", "Chat", "Turn", "Why", "Lasted", "Ended"),
    turns.map((turn) =>
      h(
        "li",
        null,
        h(
          isOfOneChat ? "div" : "a",
          { class: "row", href: isOfOneChat ? null : chatHref(turn), "data-row": isOfOneChat ? null : turn.number },
          turnBadge(turn.state),
          !isOfOneChat && h("b", null, `${turn.class}/${turn.agent}`),
          h("span", { class: "key mono", title: turn.id }, turn.key ?? turn.id),
          h("span", { class: "note" }, noteOf(turn)),
          h("span", { class: "lasted" }, turn.settled_ms && turn.started_ms ? span(turn.settled_ms - turn.started_ms) : ""),
          age(turn.settled_ms ?? turn.started_ms ?? turn.created_ms),
        ),
      ),
    ),
  );
}

/** One part of a message: its words, or a call with what went in and came out. */
function part(value) {
  if (typeof value?.text === "string") return h("p", { class: value.type === "reasoning" ? "words quiet" : "words" }, value.text);
  if (typeof value?.type === "string" && (value.type.startsWith("tool-") || value.type === "dynamic-tool")) {
    const name = value.type === "dynamic-tool" ? value.toolName : value.type.slice("tool-".length);
    return h("div", { class: "call" }, h("b", { class: "mono" }, name), " ", h("span", { class: "quiet" }, value.state ?? ""), " ", tree({ value: { input: value.input, output: value.output ?? value.errorText ?? null } }));
  }
  return h("div", { class: "quiet mono" }, short(value, 120));
}

function message({ id, role, message: view, is_pending }) {
  const parts = Array.isArray(view.value?.parts) ? view.value.parts.map(part) : tree(view);
  return h("li", { class: `said-by ${role}` }, h("div", { class: "quiet" }, h("b", null, role), " ", h("span", { class: "mono" }, id), is_pending && h("span", { class: "badge waiting" }, "waits for an answer")), parts);
}

export const chats = {
  load: ({ before, failed }) => api(`chats?${query({ before, failed })}`),
  render(data, { failed }, { go }) {
    return [
      h("h1", null, "Chats"),
      h("div", { class: "filters" }, h("button", { type: "button", class: "chip", "aria-pressed": String(failed === "true"), onclick: () => go(failed ? "#/chats" : "#/chats?failed=true") }, "Failed only"), h("span", { class: "quiet" }, `${plural(data.turns.length, "turn", data.next !== null)} of all chats, the newest first`)),
      !failed &&
        data.pending.length > 0 &&
        h(
          "section",
          { class: "card" },
          h("h2", null, "Waits for an answer", h("span", { class: "count" }, `${data.pending.length}${data.pending_more ? " or more" : ""}`)),
          h(
            "ul",
            { class: "fibers of-chats" },
            data.pending.map((one) => h("li", null, h("a", { class: "row", href: chatHref(one), "data-row": `${one.agent} ${one.message.id}` }, h("span", { class: "badge waiting" }, "Waits"), h("b", null, `${one.class}/${one.agent}`), h("span", { class: "key mono" }, one.message.id), h("span", { class: "note" }), h("span", { class: "lasted" }), age(one.since_ms)))),
          ),
        ),
      data.turns.length ? h("section", { class: "card flush" }, turnRows(data.turns, false)) : h("p", { class: "empty" }, failed ? "No turn has failed." : "No chat has a turn here."),
      data.next !== null && h("a", { class: "more", href: `#/chats?${query({ before: data.next, failed })}` }, "Older turns"),
    ];
  },
};

export const chat = {
  load: ({ parts: [kind, ...agent] }) => api(`chats/${encodeURIComponent(kind)}/${encodeURIComponent(agent.join("/"))}`),
  render({ chat: { turns, messages, earlier } }, { name }) {
    return [
      h("h1", null, name),
      h("p", { class: "quiet" }, h("a", { href: fibersHref({ agent: name }) }, "Fibers of this chat")),
      h("section", { class: "card" }, h("h2", null, "Conversation"), earlier > 0 && h("p", { class: "quiet" }, `${plural(earlier, "earlier message")}, not shown`), messages.length ? h("ol", { class: "conversation" }, messages.map(message)) : h("p", { class: "empty" }, "Nothing was said.")),
      h("section", { class: "card" }, h("h2", null, "Turns", h("span", { class: "count" }, turns.length)), turns.length ? turnRows(turns, true) : h("p", { class: "empty" }, "No turn is stored.")),
    ];
  },
};
