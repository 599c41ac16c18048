// A function's source: an arrow at the cut point, values beside their lines, and how many fibers stand where.
import { h } from "./dom.js";
import { plural, preview, tree } from "./format.js";

const WORDS = new Set(
  "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while".split(" "),
);
const TOKEN = /(\/\/[^\n]*|\/\*[\s\S]*?\*\/)|(b?r(#*)"[\s\S]*?"\3|b?"(?:\\[\s\S]|[^"\\])*"|'(?:\\.[^']*|[^'\\])')|([A-Za-z_]\w*!)(?=\s*[([{])|([A-Za-z_]\w*)|(\d[\w.]*)|([\s\S])/g;

/** The lines of a text as lists of [class, text]. */
export function highlight(text) {
  const lines = [[]];
  const add = (kind, part) => {
    part.split("\n").forEach((piece, n) => {
      if (n > 0) lines.push([]);
      if (piece) lines.at(-1).push([kind, piece]);
    });
  };
  for (const [all, comment, string, , macro, word, number] of text.matchAll(TOKEN)) {
    if (comment) add("comment", all);
    else if (string) add("text", all);
    else if (macro) add("macro", all);
    else if (word) add(WORDS.has(word) ? "word" : /^[A-Z]/.test(word) ? "type" : "", all);
    else if (number) add("number", all);
    else add("", all);
  }
  return lines;
}

/** Without the indentation that the function has in its file. */
function dedented(source) {
  const indent = " ".repeat(Math.max(0, source.column - 1));
  return source.text.split("\n").map((line, n) => (n > 0 && line.startsWith(indent) ? line.slice(indent.length) : line)).join("\n");
}

/** The lines on which stored names stand, with all that stands there. */
function byLine(names, locals) {
  const lines = new Map();
  for (const local of locals) {
    const line = names[local.name];
    if (line === undefined) continue;
    lines.set(line, [...(lines.get(line) ?? []), local]);
  }
  return lines;
}

/** What a local is called on the page. */
export const nameOf = (local) => (local.role === "items" ? local.name.replace(/ left(?=#|$)/, "") : local.role === "position" ? "position" : local.name);

/** Its value in one line; of a loop, how many items are left. */
function valueOf(local) {
  const rest = local.role === "items" ? local.value?.rest : null;
  return Array.isArray(rest) ? `${rest.length} left ${rest.length ? preview({ value: rest }, 32) : ""}` : preview(local, 44);
}

/**
 * The source of a function. `frame` is where one fiber stands in it, if one does; `now` the step that it is at or was stopped in behind that, if it
 * is known, with what is wrong with it; `positions` where all stand.
 */
export function sourceView(fn, { frame, now, positions = [], locals = [], innermost = true, link }) {
  const { source } = fn;
  if (!source) return h("p", { class: "quiet" }, "The source of this function was not recorded.");
  if (!source.text) return h("p", { class: "quiet" }, `${source.file}:${source.line} (the text is left out by source = false)`);
  const cuts = new Map(fn.cuts.map((cut) => [cut.name, cut]));
  const saved = frame && cuts.get(frame.at);
  // A branch stands in its `steps!`.
  const at = cuts.get(now?.step) ?? cuts.get(now?.step.replace(/\[.*$/, ""));
  const current = at ?? saved;
  const isFault = Boolean(at && now.tag);
  const here = new Map();
  for (const { at, fibers } of positions) {
    const cut = cuts.get(at);
    if (cut?.line !== null && cut?.line !== undefined) here.set(cut.line, { fibers: (here.get(cut.line)?.fibers ?? 0) + fibers, at });
  }
  const values = byLine(source.locals, locals);
  const stops = new Map(fn.cuts.filter((cut) => cut.line !== null && cut.kind !== "pending").map((cut) => [cut.line, cut]));
  const rows = highlight(dedented(source)).map((parts, line) => {
    const isCurrent = current && current.line !== null && line >= current.line && line <= current.end;
    const isArrow = isCurrent && line === current.line;
    const isSaved = saved && saved !== current && line === saved.line && !isArrow;
    const cut = stops.get(line);
    const count = here.get(line);
    const marker = isArrow ? h("span", { class: "arrow", title: isFault ? now.tag : innermost ? "stands here" : "calls from here" }, isFault ? "✗" : innermost ? "▶" : "▷") : isSaved ? h("span", { class: "saved", title: "the last checkpoint" }, "✓") : cut ? h("span", { class: "stop", title: `${cut.kind} ${cut.name}` }, cut.is_effect ? "◆" : "•") : "";
    return h(
      "div",
      { class: `line${isCurrent ? " current" : ""}${isCurrent && isFault ? " fault" : ""}`, id: isArrow ? "here" : null },
      h("span", { class: "number" }, source.line + line),
      h("span", { class: "mark" }, marker),
      h(
        "div",
        { class: "said" },
        h("code", null, parts.map(([kind, text]) => (kind ? h("span", { class: kind }, text) : text))),
        isArrow && isFault && h("span", { class: "tag bad" }, now.tag),
        isSaved && h("span", { class: "tag good" }, "last checkpoint"),
        (values.get(line) ?? []).map((local) => h("details", { class: `value role-${local.role}`, "data-keep": `value ${local.name}` }, h("summary", null, h("b", null, nameOf(local)), " ", valueOf(local)), h("div", { class: "full" }, tree(local, true)))),
        count && h("a", { class: "here", href: link?.(count.at) ?? "#/" }, `${plural(count.fibers, "fiber")} here`),
      ),
    );
  });
  return h("div", { class: "source", role: "region", "aria-label": `Source of ${fn.name}`, tabindex: 0 }, h("p", { class: "file mono" }, `${source.file}:${source.line}`), rows);
}
