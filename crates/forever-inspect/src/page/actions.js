// Commands, each with what it will do before it is done.
import { command, h, toast } from "./dom.js";

/** Asks in a dialog; gives the values of its fields, or null. */
export function ask(title, explanation, fields, label, isDangerous = false) {
  const dialog = document.querySelector("dialog");
  return new Promise((resolve) => {
    const inputs = fields.map(({ name, label, value = "", hint, kind = "text", choices }) => {
      const input = choices
        ? h("select", { name }, choices.map(([value, text]) => h("option", { value }, text)))
        : kind === "json"
          ? h("textarea", { name, rows: 4, spellcheck: "false", class: "mono" }, value)
          : h("input", { name, value, autocomplete: "off" });
      return h("label", null, label, input, hint && h("small", null, hint));
    });
    const problem = h("p", { class: "problem", role: "alert" });
    const submit = (event) => {
      event.preventDefault();
      const values = {};
      for (const { name, kind, choices } of fields) {
        const text = form.elements.namedItem(name).value;
        try {
          values[name] = kind === "json" && !choices ? JSON.parse(text) : text;
        } catch {
          problem.textContent = "This is not JSON. Text is written in quotes: \"yes\".";
          return;
        }
      }
      finish(values);
    };
    const finish = (values) => {
      dialog.removeEventListener("close", closed);
      dialog.close();
      dialog.replaceChildren();
      resolve(values);
    };
    const closed = () => finish(null);
    const cancel = h("button", { type: "button", onclick: closed }, "Cancel");
    const form = h(
      "form",
      { method: "dialog", onsubmit: submit },
      h("h2", null, title),
      explanation && h("p", null, explanation),
      inputs,
      problem,
      h("div", { class: "buttons" }, cancel, h("button", { class: isDangerous ? "danger" : "primary" }, label)),
    );
    dialog.replaceChildren(form);
    dialog.addEventListener("close", closed);
    dialog.showModal();
    (form.querySelector("input, textarea, select") ?? form.querySelector(".primary, .danger")).focus();
  });
}

async function perform(path, body, done, refresh) {
  try {
    await command(path, body);
    toast(done);
  } catch (error) {
    toast(error.message, true);
  }
  refresh();
}

/** The commands that a fiber takes in its state. */
export function actionsOf(fiber, refresh, isDoubtful = false) {
  const id = encodeURIComponent(fiber.id);
  const { state } = fiber;
  const stopped = ["failed", "parked", "interrupted"].includes(state);
  const open = !["completed", "failed", "cancelled"].includes(state);
  const all = {
    resume: stopped && !fiber.is_closure && {
      label: "Resume",
      kind: isDoubtful ? "" : "primary",
      run: async () => {
        const sure = await ask("Resume this fiber", `It goes on behind “${(fiber.at ?? "its start").replace(/ pending(?=#|$)/, "")}” with the stored values, in this code.`, [], "Resume");
        if (sure) await perform(`fibers/${id}/resume`, {}, "Resumed", refresh);
      },
    },
    restart: (stopped || state === "cancelled") && !fiber.is_closure && {
      label: "Restart",
      run: async () => {
        const text = "It begins again with its arguments. Steps that have finished run again; effects get new ids.";
        const sure = await ask("Restart this fiber from the start", text, [], "Restart", true);
        if (sure) await perform(`fibers/${id}/restart`, {}, "Restarted", refresh);
      },
    },
    send: open && {
      label: "Send",
      run: async () => {
        const topics = fiber.wait?.topics ?? [];
        const values = await ask(
          "Send a message",
          "It is received once, by the fiber's next recv! on the topic.",
          [
            { name: "topic", label: "Topic", value: topics[0] ?? "" },
            { name: "value", label: "Value, JSON", kind: "json", value: "true" },
          ],
          "Send",
        );
        if (values) await perform(`fibers/${id}/send`, values, "Sent", refresh);
      },
    },
    resolve: ["parked", "interrupted"].includes(state) && {
      label: "End by hand",
      run: async () => {
        const values = await ask(
          "End this fiber by hand",
          "Its code does not run again. Those who wait for it get this outcome.",
          [
            { name: "how", label: "Outcome", choices: [["complete", "Completed, with this value"], ["fail", "Failed, for this reason"]] },
            { name: "value", label: "Value, JSON, if it completed", kind: "json", value: "null" },
            { name: "reason", label: "Reason, if it failed" },
          ],
          "End it",
          true,
        );
        if (!values) return;
        const body = values.how === "complete" ? { how: "complete", value: values.value } : { how: "fail", reason: values.reason };
        await perform(`fibers/${id}/resolve`, body, "Resolved", refresh);
      },
    },
    cancel: open && {
      label: "Cancel",
      kind: "danger",
      run: async () => {
        const text = "It and its children end as cancelled. One that runs stops at its next step.";
        const values = await ask("Cancel this fiber", text, [{ name: "reason", label: "Reason", value: "cancelled by a person" }], "Cancel it", true);
        if (values) await perform(`fibers/${id}/cancel`, values, "Cancelled", refresh);
      },
    },
  };
  return Object.values(all)
    .filter(Boolean)
    .map(({ label, kind, run }) => h("button", { type: "button", class: kind, onclick: run }, label));
}

/** Says what became of an operation in doubt. */
export function resolveOp(op, refresh) {
  const run = async () => {
    const values = await ask(
      `Was “${op.step}” carried out?`,
      `Look it up on the other side by its id, ${op.id}. The fiber goes on with what you say.`,
      [
        {
          name: "how",
          label: "Outcome",
          choices: [
            ["completed", "Yes: it gave this value"],
            ["not_executed", "No: run it again, under the same id"],
            ["failed", "It failed, with this error"],
          ],
        },
        { name: "value", label: "Value, JSON, as the step gives it", kind: "json", value: "null" },
        { name: "error", label: "Error, if it failed" },
      ],
      "Resolve",
    );
    if (!values) return;
    const body = { how: values.how };
    if (values.how === "completed") body.value = values.value;
    if (values.how === "failed") body.error = values.error;
    await perform(`ops/${encodeURIComponent(op.id)}/resolve`, body, "Resolved", refresh);
  };
  return h("button", { type: "button", class: "primary", onclick: run }, "Resolve");
}

/** Deletes a message that a fiber cannot receive. */
export function discard(fiber, message, refresh) {
  const run = async () => {
    const text = `The fiber will not receive message ${message.number} on topic “${message.topic}”. Resume it afterwards if the message has parked it.`;
    const sure = await ask("Discard this message", text, [], "Discard", true);
    if (sure) await perform(`fibers/${encodeURIComponent(fiber)}/discard`, { number: message.number }, "Discarded", refresh);
  };
  return h("button", { type: "button", onclick: run }, "Discard");
}

/** One command for all fibers of a filter. */
export async function bulk(action, filter, refresh) {
  const values = await ask(
    `${action[0].toUpperCase()}${action.slice(1)} every fiber of this list`,
    "That is every fiber that the filter lets through, not only those that are shown. Those that cannot take the command stay as they are.",
    action === "cancel" ? [{ name: "reason", label: "Reason", value: "cancelled by a person" }] : [],
    `${action[0].toUpperCase()}${action.slice(1)} all`,
    action !== "resume",
  );
  if (!values) return;
  let [done, refused, after] = [0, 0, null];
  try {
    do {
      const answer = await command("bulk", { action, filter, after, ...values });
      done += answer.done;
      refused += answer.refused.length;
      after = answer.next;
    } while (after !== null);
    toast(`${done} done${refused ? `, ${refused} could not take it` : ""}`, refused > 0);
  } catch (error) {
    toast(`${done} done, then: ${error.message}`, true);
  }
  refresh();
}
