// The layout of a function as a graph: its cut points in the order of the source, and which may come after which.
import { h, svg } from "./dom.js";
import { plain, plural } from "./format.js";

/** Height of a row, as the style sheet has it. */
const ROW = 30;

/** Rows and edges between them: the beginning, the cut points, the end. Those that only store that a step waits are part of their step. */
function graph(fn) {
  const rows = fn.cuts.flatMap((cut, n) => (cut.kind === "pending" ? [] : [{ cut, n }]));
  const rowOf = new Map(rows.map(({ n }, row) => [n, row + 1]));
  const last = rows.length + 1;
  const reached = (next, seen = new Set()) =>
    next.flatMap((n) => {
      if (n === null) return [last];
      if (rowOf.has(n)) return [rowOf.get(n)];
      if (seen.has(n)) return [];
      seen.add(n);
      return reached(fn.cuts[n].next, seen);
    });
  const edges = [[0, fn.first], ...rows.map(({ cut }, row) => [row + 1, cut.next])].flatMap(([from, next]) => [...new Set(reached(next))].map((to) => [from, to]));
  return { cuts: rows.map(({ cut }) => cut), edges };
}

/** An edge: straight down to the next row, on the left back to an earlier one, on the right past some. */
function edge([from, to], center, room) {
  const y = (row) => row * ROW + ROW / 2;
  if (to === from + 1) return svg("path", { class: "edge", d: `M${center} ${y(from) + 6}V${y(to) - 6}` });
  const isBack = to <= from;
  const wide = Math.min(room - 4, 8 + 4 * Math.abs(to - from)) * (isBack ? -1 : 1);
  const side = isBack ? -6 : 6;
  const [start, end] = to === from ? [y(from) + 4, y(to) - 4] : [y(from), y(to)];
  return svg("path", { class: isBack ? "edge back" : "edge skip", "data-from": from, "data-to": to, d: `M${center + side} ${start}C${center + side + wide} ${start} ${center + side + wide} ${end} ${center + side} ${end}` });
}

/** The graph of a function as a card, with the number of fibers at each cut point. */
export function layoutCard(fn, positions, link) {
  const { cuts, edges } = graph(fn);
  const [room, center] = [40, 40];
  const height = (cuts.length + 2) * ROW;
  const count = (isHere) => {
    const fibers = positions.filter(({ at }) => isHere(at)).reduce((sum, { fibers }) => sum + fibers, 0);
    return fibers > 0 && h("a", { class: "here", href: link() }, plural(fibers, "fiber"));
  };
  const drawing = h(
    "div",
    { class: "graph" },
    svg(
      "svg",
      { width: center + room, height, "aria-hidden": "true" },
      edges.map((each) => edge(each, center, room)),
      [...Array(cuts.length + 2).keys()].map((row) => svg("circle", { class: row === 0 || row > cuts.length ? "rim" : cuts[row - 1].is_effect ? "cut effect" : "cut", cx: center, cy: row * ROW + ROW / 2, r: 5 })),
    ),
    h(
      "ol",
      null,
      h("li", null, h("span", { class: "quiet" }, "begins"), count((at) => at === null)),
      cuts.map((cut) =>
        h(
          "li",
          null,
          h("span", { class: "kind" }, cut.is_effect ? "effect" : cut.kind),
          h("b", null, cut.name),
          h("span", { class: "note quiet" }, cut.locals.length ? `keeps ${cut.locals.join(", ")}` : "keeps nothing"),
          count((at) => at === cut.name || (at !== null && plain(at) === cut.name)),
        ),
      ),
      h("li", null, h("span", { class: "quiet" }, "ends")),
    ),
  );
  return h("section", { class: "card" }, h("h2", null, "Layout", h("span", { class: "count" }, plural(cuts.length, "cut point"))), drawing);
}
