// Markdown as React elements. What a model writes is never HTML here: tags in it are shown as text, and
// links lead to the web or to mail only.
import { memo, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { isWide, lex } from "./lex.js";
import { pieces } from "./marks.js";
import { Plain, Text } from "./text.jsx";

export const Markdown = memo(function Markdown({ text }) {
  const begun = performance.now();
  const [shown, pause] = usePaced(text);
  const read = useRef(undefined);
  const blocks = useMemo(() => (read.current = lex(shown, read.current)).shown, [shown]);
  useLayoutEffect(() => pause(10 * (performance.now() - begun)), [blocks]);
  return <div className="markdown" dir="auto"><Blocks tokens={blocks} /></div>;
});

/** A text that grows, which is renewed at the end of a pause, and a function that begins one, in ms. */
function usePaced(text) {
  const [shown, setShown] = useState(text);
  const over = useRef(0);
  useEffect(() => {
    if (text === shown) return undefined;
    const renew = setTimeout(() => setShown(text), over.current - performance.now());
    return () => clearTimeout(renew);
  }, [text, shown]);
  return [shown, (ms) => void (over.current = performance.now() + ms)];
}

const Blocks = ({ tokens = [] }) => tokens.map((token, at) => <Token key={at} token={token} />);

function Token({ token }) {
  const children = token.tokens ? <Blocks tokens={token.tokens} /> : <Text text={token.text ?? token.raw ?? ""} />;
  switch (token.type) {
    case "space":
    case "def":
      return null;
    case "heading": {
      const Heading = `h${Math.min(token.depth + 1, 6)}`;
      return <Heading dir="auto">{children}</Heading>;
    }
    case "paragraph":
      return <p dir="auto">{children}</p>;
    case "strong":
      return <strong>{children}</strong>;
    case "em":
      return <em>{children}</em>;
    case "del":
      return <del>{children}</del>;
    case "codespan":
      return <code><Text text={token.text} /></code>;
    case "code":
      return <Code text={token.text} lang={token.lang} />;
    case "br":
      return <br />;
    case "hr":
      return <hr />;
    case "blockquote":
      return <blockquote dir="auto">{children}</blockquote>;
    case "list": {
      const List = token.ordered ? "ol" : "ul";
      return <List dir="auto" start={token.ordered ? token.start : undefined}>{token.items.map((item, at) => <Item key={at} item={item} />)}</List>;
    }
    case "table":
      return isWide(token) ? <Plain text={token.raw} /> : <Table token={token} />;
    case "plain":
      return <Plain text={token.text} />;
    case "link":
      return /^(https?:|mailto:)/i.test(token.href) ? <a href={token.href} target="_blank" rel="noreferrer noopener">{children}</a> : <span>{children}</span>;
    // A picture would tell its server who reads this.
    case "image":
      return <span>{token.text || token.href}</span>;
    case "html":
      return <Text text={token.raw} />;
    default:
      return children;
  }
}

const Item = ({ item }) => (
  <li dir="auto">
    {item.task && <input type="checkbox" checked={item.checked} readOnly />}
    <Blocks tokens={item.tokens} />
  </li>
);

const Table = ({ token }) => (
  <div className="wide">
    <table>
      <thead><tr>{token.header.map((cell, at) => <th key={at} dir="auto"><Blocks tokens={cell.tokens} /></th>)}</tr></thead>
      <tbody>
        {token.rows.map((row, at) => (
          <tr key={at}>{row.map((cell, at) => <td key={at} dir="auto"><Blocks tokens={cell.tokens} /></td>)}</tr>
        ))}
      </tbody>
    </table>
  </div>
);

function Code({ text, lang }) {
  const plain = pieces(text).filter((piece) => typeof piece === "string").join("");
  return (
    <figure className="code" dir="ltr">
      <figcaption>{(lang ?? "").match(/^[\w+#.-]*/)[0] || "text"}<Copy text={plain} /></figcaption>
      <pre tabIndex={0}><code><Text text={text} /></code></pre>
    </figure>
  );
}

/** A button that copies a text. */
export function Copy({ text, label = "Copy" }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setCopied(true);
      setTimeout(() => setCopied(false), 1500);
    } catch {
      // Not allowed here: the text can be selected.
    }
  };
  return <button type="button" className="copy" onClick={copy} aria-label={`${label}: ${text.slice(0, 40)}`}>{copied ? "Copied" : label}</button>;
}
