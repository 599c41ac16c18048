// Text as it is, with its marks.
import { createContext, memo, useContext } from "react";
import { pieces } from "./marks.js";

/** The marks of the message, by number. */
export const Marks = createContext([]);

/** Text with its marks. */
export const Text = ({ text }) => pieces(text).map((piece, at) => (typeof piece === "number" ? <Mark key={at} nth={piece} /> : piece));

function Mark({ nth }) {
  const mark = useContext(Marks)[nth];
  if (!mark) return null;
  const gone = mark.ms < 1000 ? "at once" : `${Math.round(mark.ms / 1000)} s later`;
  return <span className="mark" dir="ltr">server {mark.killed ? "killed" : "stopped"}, resumed {gone}</span>;
}

/** Characters that are laid out together. */
const PIECE = 10_000;

/** A text of any length, of which nothing is laid out that is out of sight. */
export const Plain = ({ text }) => <div className="plain" dir="auto">{piecesOf(text).map((piece, at) => <Piece key={at} text={piece} />)}</div>;

const Piece = memo(({ text }) => <div><Text text={text} /></div>);

function piecesOf(text) {
  const pieces = [];
  for (let begin = 0, end; begin < text.length; begin = end) {
    end = begin + PIECE < text.length ? endOf(text, begin) : text.length;
    pieces.push(text.slice(begin, end));
  }
  return pieces;
}

/** The end of the piece that begins there: behind a line, else behind a word, else not within a pair of surrogates. */
function endOf(text, begin) {
  const most = begin + PIECE;
  const piece = text.slice(begin, most);
  for (const space of ["\n", " "]) {
    const at = piece.lastIndexOf(space);
    if (at > 0) return begin + at + 1;
  }
  return /[\udc00-\udfff]/.test(text[most]) ? most - 1 : most;
}
