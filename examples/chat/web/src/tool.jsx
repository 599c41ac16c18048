// A tool call in words: what is asked of the person, and what came of it.

/** 1200 as `12.00 €`. */
const money = (cents) => `${(Number(cents) / 100).toFixed(2)} €`;

/** Fields of a JSON value as words. */
const fields = (value) => {
  if (value === null || typeof value !== "object") return value === undefined ? "" : String(value);
  return Object.entries(value).map(([name, value]) => `${name}: ${typeof value === "object" ? JSON.stringify(value) : value}`).join(", ");
};

/** What a call does, as a question, while it waits, and when it is done. */
function inWords(name, input = {}, output) {
  if (name === "pay" && input?.to !== undefined && Number.isFinite(Number(input.cents))) {
    const what = `${money(input.cents)} to ${input.to}`;
    return { question: `Pay ${what}?`, waits: `Paying ${what}`, done: `Paid ${what}`, not: `Not paid: ${what}`, detail: output?.receipt && `Receipt ${output.receipt}` };
  }
  if (name === "getLocation") return { question: "", waits: "Asking your browser for its language", done: "Your browser answered", not: "", detail: fields(output) };
  const what = fields(input) ? `${name} (${fields(input)})` : name;
  return { question: `Use ${what}?`, waits: `Using ${what}`, done: `Used ${what}`, not: `Not used: ${what}`, detail: fields(output) };
}

export function ToolCall({ part, answer }) {
  const name = part.type === "dynamic-tool" ? part.toolName : part.type.slice("tool-".length);
  const words = inWords(name, part.input, part.output);
  if (part.state === "approval-requested") {
    return (
      <section className="tool asks" dir="auto" aria-label="Approval">
        <strong>{words.question}</strong>
        <p>Nothing happens until you decide. You can also close this page and decide tomorrow.</p>
        <div className="choices">
          <button type="button" onClick={() => answer(part.approval.id, true)}>Approve</button>
          <button type="button" className="plain" onClick={() => answer(part.approval.id, false)}>Decline</button>
        </div>
      </section>
    );
  }
  const declined = part.state === "output-denied" || part.approval?.approved === false;
  const failed = part.state === "output-error";
  const text = declined ? words.not : failed ? `${words.not || name}: ${part.errorText}` : part.state === "output-available" ? words.done : `${words.waits} …`;
  return (
    <div className={`tool ${failed || declined ? "not" : ""}`} dir="auto">
      <span>{declined || failed ? "✕" : part.state === "output-available" ? "✓" : "…"} {text}</span>
      {part.state === "output-available" && words.detail && <small>{words.detail}</small>}
    </div>
  );
}
