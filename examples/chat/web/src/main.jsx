// The hooks of the published packages, with the recipe of the guide for a server that is away.
import { useAgentChat } from "@cloudflare/ai-chat/react";
import { useAgent } from "agents/react";
import { memo, Suspense, useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";
import { createRoot } from "react-dom/client";
import { Boundary } from "./boundary.jsx";
import { retries, useConnection } from "./connection.js";
import { Copy, Markdown } from "./markdown.jsx";
import { marked, marksOf } from "./marks.js";
import { getInitialMessages, resilientAgent } from "./resilient/agent.js";
import { Marks, Plain } from "./text.jsx";
import { ToolCall } from "./tool.jsx";

/** `?chat=` is the name of the chat; what else is there goes with each question, such as `delay` (ms a word). */
const { chat: name = "page", ...query } = Object.fromEntries(new URLSearchParams(location.search));
const body = Object.fromEntries(Object.entries(query).map(([field, text]) => [field, text !== "" && Number.isFinite(Number(text)) ? Number(text) : text]));

const QUESTIONS = ["What happens if I kill your server now?", "Show me the code of a durable agent.", "Please pay Ada 12 euros."];

function Chat() {
  const [recovering, setRecovering] = useState(false);
  const [about, setAbout] = useState({});
  const [words, setWords] = useState("");
  /** Turns under way, also those that another tab has asked for. */
  const underWay = useRef(new Set());
  const socket = useAgent({
    agent: "ChatAgent",
    name,
    host: location.host,
    ...retries,
    onClose: () => {
      // What is under way then is told on the next connection.
      underWay.current.clear();
      setRecovering(false);
    },
    onMessage: ({ data }) => {
      const frame = JSON.parse(data);
      if (frame.type === "cf_agent_chat_recovering") setRecovering(frame.recovering);
      if (frame.type === "cf_agent_use_chat_response") underWay.current[frame.done ? "delete" : "add"](frame.id);
      if (frame.type === "cf_agent_stream_resuming" || frame.type === "cf_agent_stream_pending") underWay.current.add(frame.id);
    },
  });
  const agent = resilientAgent(socket);
  const { connected, online, wait } = useConnection(agent);
  useEffect(() => {
    // The process is another one after each kill.
    if (connected) agent.call("about").then(setAbout, () => {});
  }, [agent, connected]);
  const { messages: received, sendMessage, status, isStreaming, error, stop, clearHistory, addToolApprovalResponse } = useAgentChat({
    agent,
    getInitialMessages,
    onToolCall: ({ toolCall, addToolOutput }) => addToolOutput({ toolCallId: toolCall.toolCallId, output: { language: navigator.language } }),
  });
  const messages = useSteady(received);
  const answer = useStable((id, approved) => addToolApprovalResponse({ id, approved }));
  const busy = status === "submitted" || isStreaming;
  const ask = (text) => {
    if (!text.trim() || busy) return;
    sendMessage({ text }, { body });
    setWords("");
  };
  const halt = () => {
    // The hook cancels what this tab has asked for, and not what it only watches.
    for (const id of underWay.current) agent.send(JSON.stringify({ type: "cf_agent_chat_request_cancel", id }));
    stop();
  };
  useFollow(messages);
  const last = messages.at(-1);
  // Of an answer that failed, its message says so.
  const failed = error && last?.metadata?.forever?.outcome !== "error" ? error.message : "";
  // Of a process that is gone there is nothing to kill.
  const kill = connected && about.pid && `kill -9 ${about.pid}`;
  return (
    <>
      <header>
        <strong>Forever</strong>
        <span className="model">{about.model}</span>
        {kill && messages.length > 0 && <Command text={kill} />}
        {messages.length > 0 && <button type="button" className="plain" onClick={clearHistory}>Clear</button>}
      </header>
      <main>
        {messages.length === 0 ? <Empty kill={kill} ask={ask} /> : (
          <div className="messages" role="log" aria-live="polite" aria-busy={busy}>
            {messages.map((message) => (
              <Boundary key={message.id} value={message} fallback={() => <Unformatted message={message} />}>
                <Message message={message} answer={answer} />
              </Boundary>
            ))}
            {busy && (last?.role === "user" || !text(last)) && <Typing />}
          </div>
        )}
      </main>
      <footer>
        <div className={`note ${failed && connected ? "error" : ""}`} role="status">
          {!connected ? <Lost online={online} wait={wait} retry={() => agent.reconnect()} /> : recovering ? "The server was gone. The answer goes on." : failed}
        </div>
        <form onSubmit={(event) => (event.preventDefault(), ask(words))}>
          <Input words={words} setWords={setWords} submit={() => ask(words)} />
          {busy ? <button type="button" className="stop" onClick={halt}>Stop</button> : <button disabled={!words.trim()}>Send</button>}
        </form>
      </footer>
    </>
  );
}

/** A function that stays the same, and does what the newest one does. */
function useStable(call) {
  const newest = useRef(call);
  newest.current = call;
  return useCallback((...args) => newest.current(...args), []);
}

/** For how long an answer that is about to be played back may be missing, in ms. */
const HELD = 500;

/**
 * On each new connection the hook first has the stored conversation, in which the answer under way is
 * missing, and then that answer from its beginning. The last one stays in sight until it comes.
 */
function useSteady(messages) {
  const shown = useRef(messages);
  const [given, setGiven] = useState(undefined);
  const last = shown.current.at(-1);
  const missing = last?.role === "assistant" && last !== given && messages.length > 0 && messages.at(-1).id === shown.current.at(-2)?.id;
  useEffect(() => {
    if (!missing) shown.current = messages;
  });
  useEffect(() => {
    if (!missing) return undefined;
    const held = setTimeout(() => setGiven(last), HELD);
    return () => clearTimeout(held);
  }, [missing, last]);
  return missing ? shown.current : messages;
}

/** Keeps the end in sight, unless the person has scrolled away from it. */
function useFollow(messages) {
  const follows = useRef(true);
  const mine = messages.findLast((message) => message.role === "user")?.id;
  useEffect(() => {
    const look = () => (follows.current = document.documentElement.scrollHeight - innerHeight - scrollY < 80);
    addEventListener("scroll", look, { passive: true });
    return () => removeEventListener("scroll", look);
  }, []);
  useLayoutEffect(() => void (follows.current = true), [mine]);
  useLayoutEffect(() => {
    if (follows.current) scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
  }, [messages]);
}

const text = (message) => message?.parts.some((part) => (part.type === "text" && part.text) || part.type.startsWith("tool-"));

const Message = memo(function Message({ message, answer }) {
  const texts = marked(message);
  const { outcome, reason } = message.metadata?.forever ?? {};
  return (
    <Marks value={marksOf(message)}>
      <article className={`message ${message.role}`}>
        {message.parts.map((part, at) => {
          if (part.type === "text") return message.role === "user" ? <Plain key={at} text={part.text} /> : <Markdown key={at} text={texts[at]} />;
          return part.type.startsWith("tool-") || part.type === "dynamic-tool" ? <ToolCall key={at} part={part} answer={answer} /> : null;
        })}
        {outcome === "error" && <div className="error" dir="auto">{reason}</div>}
        {outcome === "aborted" && <div className="ended">Stopped.</div>}
      </article>
    </Marks>
  );
});

/** A message that cannot be rendered otherwise. */
const Unformatted = ({ message }) => (
  <article className={`message ${message.role}`}>
    {message.parts.map((part, at) => (typeof part.text === "string" ? <Plain key={at} text={part.text} /> : null))}
  </article>
);

const Typing = () => <div className="typing" role="img" aria-label="The answer is on its way"><i /><i /><i /></div>;

function Lost({ online, wait, retry }) {
  if (!online) return <span>Not connected: this browser is offline.</span>;
  return (
    <>
      <span>Not connected. {wait ? `Trying again in ${wait}\u00a0s.` : "Trying again."} Start the server to continue.</span>
      <button type="button" className="plain" onClick={retry}>Retry now</button>
    </>
  );
}

const Command = ({ text }) => <span className="command" dir="ltr"><code>{text}</code><Copy text={text} /></span>;

function Empty({ kill, ask }) {
  return (
    <section className="empty">
      <h1>This chat survives <code>kill&nbsp;-9</code></h1>
      <p>Ask something. In the middle of the answer, kill the server in a terminal:</p>
      {kill ? <Command text={kill} /> : <span className="command"><code>kill -9 …</code></span>}
      <p>Start it again, and the same answer goes on where it stopped.</p>
      <div className="questions">
        {QUESTIONS.map((question) => <button key={question} type="button" className="plain" onClick={() => ask(question)}>{question}</button>)}
      </div>
    </section>
  );
}

function Input({ words, setWords, submit }) {
  const box = useRef(null);
  useLayoutEffect(() => {
    box.current.style.height = "auto";
    box.current.style.height = `${box.current.scrollHeight + 2}px`;
  }, [words]);
  const typed = (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    submit();
  };
  return <textarea ref={box} rows={1} dir="auto" autoFocus aria-label="Message" placeholder="Ask something" value={words} onKeyDown={typed} onChange={(event) => setWords(event.target.value)} />;
}

const Failed = ({ error }) => (
  <p className="loading">
    The chat cannot be shown: {error.message} <button type="button" className="plain" onClick={() => location.reload()}>Load again</button>
  </p>
);

createRoot(document.getElementById("page")).render(
  <Boundary fallback={(error) => <Failed error={error} />}>
    <Suspense fallback={<p className="loading">Loading … The chat appears when its server answers.</p>}>
      <Chat />
    </Suspense>
  </Boundary>,
);
