// The tokens of a Markdown text, within limits. What is beyond a limit is a token of the type `plain`, with the whole text.
import { Lexer } from "marked";

/** Characters that are read as Markdown: of a text, and of one paragraph, heading or cell. */
const [OF_TEXT, OF_PARAGRAPH] = [100_000, 5_000];
/** Levels of nested blocks, and within a paragraph. */
const LEVELS = 20;
/** Columns of a table, and elements of a text. */
const [COLUMNS, ELEMENTS] = [50, 5_000];

const plain = (raw) => ({ type: "plain", raw, text: raw });

/** A lexer whose recursion ends at the limit. */
class BoundedLexer extends Lexer {
  level = 0;
  blockTokens(source, tokens = [], isTop) {
    return this.within(LEVELS, plain(source), tokens, () => super.blockTokens(source, tokens, isTop));
  }
  inlineTokens(source, tokens = []) {
    const levels = source.length > OF_PARAGRAPH ? 0 : LEVELS;
    return this.within(levels, { type: "text", raw: source, text: source }, tokens, () => super.inlineTokens(source, tokens));
  }
  within(levels, beyond, tokens, read) {
    if (this.level >= levels) {
      tokens.push(beyond);
      return tokens;
    }
    this.level += 1;
    try {
      return read();
    } finally {
      this.level -= 1;
    }
  }
}

/**
 * The blocks of a text, and what `lex` needs to read a longer one, in which only the last blocks are read again.
 *
 * `before` is the result for the text so far.
 */
export function lex(text, before) {
  const source = text.replace(/\r\n?/g, "\n");
  const end = source.length <= OF_TEXT ? source.length : source.lastIndexOf("\n", OF_TEXT) + 1 || OF_TEXT;
  const head = source.slice(0, end);
  const read = head === before?.head ? before : (blocksOf(head, before) ?? blocksOf(head));
  return { ...read, head, shown: merged([...read.blocks.map(bounded()), plain(source.slice(end))]) };
}

/** The blocks of a text that continues another; `undefined` if a definition of a link may change an earlier block. */
function blocksOf(head, before) {
  // More text may change the last block, which is followed by blank lines.
  const kept = before && head.startsWith(before.head) ? before.blocks.slice(0, -2) : [];
  const from = kept.reduce((length, { raw }) => length + raw.length, 0);
  const lexer = new BoundedLexer();
  Object.assign(lexer.tokens.links, kept.length > 0 && before.links);
  const known = Object.keys(lexer.tokens.links).length;
  const blocks = [...kept, ...lexer.lex(head.slice(from))];
  const { links } = lexer.tokens;
  return kept.length > 0 && Object.keys(links).length > known ? undefined : { blocks, links };
}

/** Blocks, as long as there are not too many elements. */
function bounded() {
  let left = ELEMENTS;
  return (block) => {
    const size = sizeOf(block);
    if (size > left) return plain(block.raw);
    left -= size;
    return block;
  };
}

/** How many elements a token becomes. */
function sizeOf(token) {
  if (isWide(token)) return 1;
  // A block of code has a head with its language and a button.
  if (token.type === "code") return 5;
  const parts = [token.tokens, token.items, token.header, token.rows?.flat()].filter(Boolean).flat();
  return parts.reduce((size, part) => size + sizeOf(part), 1);
}

/** Whether a token is a table with too many columns, which is shown as plain text. */
export const isWide = (token) => token.type === "table" && token.header.length > COLUMNS;

/** Plain texts behind one another as one. */
function merged(blocks) {
  const all = [];
  for (const block of blocks) {
    if (block.type === "plain" && all.at(-1)?.type === "plain") all.push(plain(all.pop().raw + block.raw));
    else if (block.raw || block.type !== "plain") all.push(block);
  }
  return all;
}
