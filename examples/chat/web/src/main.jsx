// The hooks of the published packages, as they are: nothing on this page knows what the server is written in.
import { useAgentChat } from "@cloudflare/ai-chat/react";
import { useAgent } from "agents/react";
import { Suspense, useEffect, useState } from "react";
import { createRoot } from "react-dom/client";

/** `?chat=` is the name of the chat, `?delay=` how long the scripted model takes for a word, in ms. */
const query = new URLSearchParams(location.search);
const delay = Number(query.get("delay") ?? 100);

/** What the model is asked to do, by the button that asks for it. */
const asks = {
  "Send": { n: 40, delay },
  "Fail": { n: 5, delay, mode: "error" },
  "Ask the page": { n: 2, delay, mode: "tool" },
  "Ask me": { n: 2, delay, mode: "approval" },
};

function Chat() {
  const [recovering, setRecovering] = useState(false);
  const [connected, setConnected] = useState(false);
  const [words, setWords] = useState("");
  const agent = useAgent({
    agent: "ChatAgent",
    name: query.get("chat") ?? "page",
    host: location.host,
    onOpen: () => setConnected(true),
    onClose: () => setConnected(false),
    onMessage: ({ data }) => {
      const frame = JSON.parse(data);
      if (frame.type === "cf_agent_chat_recovering") setRecovering(frame.recovering);
    },
  });
  const { messages, sendMessage, status, isStreaming, error, stop, clearHistory, addToolApprovalResponse } = useAgentChat({
    agent,
    onToolCall: ({ toolCall, addToolOutput }) => addToolOutput({ toolCallId: toolCall.toolCallId, output: { language: navigator.language } }),
  });
  useEffect(() => {
    // Who reads further up is left there, unless they say something.
    const below = document.body.scrollHeight - window.innerHeight - window.scrollY;
    if (below < 200 || messages.at(-1)?.role === "user") window.scrollTo(0, document.body.scrollHeight);
  }, [messages]);
  const busy = status === "submitted" || isStreaming;
  const ask = (body) => {
    sendMessage({ text: words || "Tell me something." }, { body });
    setWords("");
  };
  const note = !connected ? "Not connected; trying again." : recovering ? "The server was gone; the answer goes on." : busy ? "Answering." : "";
  return (
    <>
      <div className="messages" aria-live="polite">
        {messages.map((message) => (
          <div key={message.id} className={`message ${message.role}`}>
            {message.parts.map((part, at) => (
              <Part key={at} part={part} answer={(approved) => addToolApprovalResponse({ id: part.approval.id, approved })} />
            ))}
            {message.metadata?.forever?.outcome === "error" && <div className="error">{message.metadata.forever.reason}</div>}
          </div>
        ))}
      </div>
      <footer>
        {/* That the connection was lost is an error of the stream too, and mends itself. */}
        <div className={`note ${!note && error ? "error" : ""}`} role="status">{note || error?.message}</div>
        <form onSubmit={(event) => (event.preventDefault(), ask(asks.Send))}>
          <input aria-label="Message" placeholder="Say something" value={words} onChange={(event) => setWords(event.target.value)} />
          <button>Send</button>
        </form>
        <div className="choices">
          {Object.keys(asks).slice(1).map((name) => (
            <button key={name} type="button" className="plain" onClick={() => ask(asks[name])}>{name}</button>
          ))}
          <button type="button" className="plain" onClick={stop} disabled={!busy}>Stop</button>
          <button type="button" className="plain" onClick={clearHistory}>Clear</button>
        </div>
      </footer>
    </>
  );
}

function Part({ part, answer }) {
  if (part.type === "text") return <span>{part.text}</span>;
  if (!part.type.startsWith("tool-")) return null;
  return (
    <div className="tool">
      {part.type.slice("tool-".length)} {JSON.stringify(part.input)}
      {part.state === "approval-requested" ? (
        <div className="choices">
          <button type="button" onClick={() => answer(true)}>Yes</button>
          <button type="button" className="plain" onClick={() => answer(false)}>No</button>
        </div>
      ) : (
        <> · {part.approval?.approved === false ? "refused" : part.output ? JSON.stringify(part.output) : part.errorText ?? part.state}</>
      )}
    </div>
  );
}

createRoot(document.getElementById("page")).render(
  <Suspense fallback={<p className="note">Loading.</p>}>
    <Chat />
  </Suspense>,
);
