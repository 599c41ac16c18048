// Where the server stopped in the middle of an answer, as characters in its text.
//
// A character of Unicode's private use area stands for a mark while Markdown is read, since it is
// allowed everywhere and means nothing to Markdown.
const FIRST = 0xe000;
const MOST = 256;
const ANY = /[\ue000-\ue0ff]/g;

/** The marks of a message: `at` in its whole text, and how long the server was gone. */
export const marksOf = (message) =>
  message.parts.filter((part) => part.type === "data-resumed" && part.data).slice(0, MOST).map((part) => part.data);

/** The texts of a message, part by part, with a character for each mark. */
export function marked(message) {
  const marks = marksOf(message);
  const texts = message.parts.map((part) => (part.type === "text" ? part.text.replace(ANY, "") : undefined));
  const last = texts.findLastIndex((text) => text !== undefined);
  let begin = 0;
  return texts.map((text, part) => {
    if (text === undefined) return undefined;
    const end = begin + text.length;
    const here = marks.map(({ at }, nth) => [at, nth]).filter(([at]) => (begin <= at && at < end) || (part === last && at >= end));
    let out = text;
    for (const [at, nth] of here.reverse()) {
      const place = placeFor(text, Math.min(at - begin, text.length));
      out = out.slice(0, place) + String.fromCharCode(FIRST + nth) + out.slice(place);
    }
    begin = end;
    return out;
  });
}

/** Not at the beginning of a line, where the mark would make a list or the fence of code plain text. */
function placeFor(text, at) {
  for (let place = at; ; ) {
    const before = text.slice(0, place).trimEnd().length;
    if (text.slice(before, place).includes("\n")) place = before;
    const line = text.lastIndexOf("\n", place - 1) + 1;
    if (line === 0 || !/^\s*(```|~~~)/.test(text.slice(line, place))) return place;
    place = line - 1;
  }
}

/** A text in pieces: strings, and the numbers of marks. */
export const pieces = (text) =>
  text.split(/([\ue000-\ue0ff])/).filter(Boolean).map((piece) => (/^[\ue000-\ue0ff]$/.test(piece) ? piece.charCodeAt(0) - FIRST : piece));
