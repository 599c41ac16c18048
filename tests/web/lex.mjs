// What the page of the example makes of Markdown (examples/chat/web/src/lex.js), without a browser.
//
//   (cd ../../examples/chat/web && npm ci) && node lex.mjs
import assert from "node:assert/strict";
import { lex } from "../../examples/chat/web/src/lex.js";
import { shapes } from "./support/shapes.mjs";
import { dice } from "./support/until.mjs";

const raw = (read) => read.shown.map((block) => block.raw).join("");

/** How many tokens there are, and how deep they are nested. */
function sizeOf(token) {
  const parts = [token.tokens, token.items, token.header, token.rows?.flat()].filter(Boolean).flat().map(sizeOf);
  return { tokens: 1 + parts.reduce((sum, part) => sum + part.tokens, 0), depth: 1 + Math.max(0, ...parts.map((part) => part.depth)) };
}

const cases = {
  "a text of any shape is bounded, and whole"() {
    for (const [name, text] of Object.entries(shapes)) {
      const read = lex(text);
      // `marked` ends a list with a line break in place of a space.
      assert.equal(raw(read).trimEnd(), text.trimEnd(), name);
      const { tokens, depth } = sizeOf({ tokens: read.shown.filter(({ type }) => type !== "table") });
      assert(tokens <= 12_000 && depth <= 80, `${name}: ${tokens} tokens, ${depth} levels`);
    }
  },

  "a text that grows is read as one that is whole"() {
    const parts = ["word ", "\n", "\n\n", "- item", "    ", "> ", "```\n", "`a`", "**b**", "*c ", "| a | b |\n|---|---|\n", "| 1 | 2 |\n", "# h\n", "---\n", "===\n", "1. x\n", "[a](b)", "[ref]\n", "[ref]: http://x\n", "<div>", "</div>\n", "<!-- ", "-->", "~~~\n", "\t", "\r\n", "* x\n", "  \n", "- [ ] t\n"];
    const next = dice();
    for (let round = 0; round < 2000; round += 1) {
      let [text, read] = [""];
      for (let more = 1 + next(25); more > 0; more -= 1) {
        text += parts[next(parts.length)];
        if (next(2)) read = lex(text, read);
      }
      assert.deepEqual(lex(text, read).shown, lex(text).shown, JSON.stringify(text));
    }
  },

  "of a text that grows, the blocks before its end are read once"() {
    let [text, read, kept] = [""];
    for (let at = 0; at < 200; at += 1) {
      text += `Paragraph **${at}**.\n\n`;
      read = lex(text, read);
      // The last paragraph, and the blank line behind it, may still change.
      if (at > 1) assert(read.blocks[0] === (kept ??= read.blocks[0]));
    }
  },
};

for (const [sentence, check] of Object.entries(cases)) {
  try {
    check();
    console.log(`ok ${sentence}`);
  } catch (error) {
    console.log(`FAILED ${sentence}\n${error.stack.slice(0, 3000)}`);
    process.exitCode = 1;
  }
}
