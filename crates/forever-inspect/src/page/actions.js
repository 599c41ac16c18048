// Commands, each with what it will do before it is done.
import { command, h, toast } from "./dom.js";
import { plain } from "./format.js";

/** Asks in a dialog; gives the values of its fields, or null. A field with `of` shows what stands in `values` for the choice of that other field. */
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
        if (kind === "json" && /\d{16}/.test(text.replace(/"(\\.|[^"\\])*"/g, ""))) {
          problem.textContent = "A browser cannot keep numbers of so many digits: use the command “forever”.";
          return;
        }
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
    for (const { name, of, values } of fields.filter(({ of }) => of)) {
      const [chosen, shown] = [form.elements.namedItem(of), form.elements.namedItem(name)];
      const follow = () => (shown.value = values[chosen.value] ?? "null");
      chosen.addEventListener("change", follow);
      follow();
    }
    dialog.replaceChildren(form);
    dialog.addEventListener("close", closed);
    dialog.showModal();
    (form.querySelector("input, textarea, select") ?? form.querySelector(".primary, .danger")).focus();
  });
}

async function perform(path, body, done, refresh) {
  let answer = null;
  try {
    answer = await command(path, body);
    toast(done);
  } catch (error) {
    toast(error.message, true);
  }
  refresh();
  return answer;
}

/** Names and values of what can be set, as the API names them; those that are too long or secret begin empty. */
function settable(fiber) {
  const names = fiber.frames.flatMap((frame, depth) => frame.locals.map((local) => [depth > 0 || /^\d/.test(local.name) ? `${depth}:${local.name}` : local.name, local]));
  const locals = fiber.frames.length > 0 ? names : fiber.arguments.map((local) => [local.name, local]);
  // A value that this page has not read whole is not offered to be changed in part.
  const isWhole = (value) => (typeof value === "number" ? !Number.isInteger(value) || Number.isSafeInteger(value) : typeof value !== "object" || value === null || Object.values(value).every(isWhole));
  const json = (local) => (local.is_secret || local.preview || !isWhole(local.value) ? "null" : JSON.stringify(local.value, null, 2));
  return { choices: locals.map(([name]) => [name, name]), values: Object.fromEntries(locals.map(([name, local]) => [name, json(local)])) };
}

/** What a person makes of a fiber: other values in it, or a second fiber from it. `past` is the checkpoint that is shown, if it is not the last. */
export function changesOf(fiber, past, refresh, go) {
  const { status } = fiber;
  const id = encodeURIComponent(status.id);
  if (status.is_closure) return [];
  const { choices, values } = settable(fiber);
  const edit = async () => {
    const given = await ask(
      "Edit a value",
      "The fiber goes on with it. The code of this program reads it first: a value that it cannot go on with is refused.",
      [
        { name: "name", label: "Local", choices },
        { name: "value", label: "Value, JSON", kind: "json", of: "name", values },
        { name: "by", label: "Who changes it, for the record" },
      ],
      "Set it",
    );
    if (given) await perform(`fibers/${id}/edit`, { set: { [given.name]: given.value }, by: given.by || null }, "Edited", refresh);
  };
  const fork = async () => {
    const given = await ask(
      "Fork this fiber",
      `A second fiber begins behind checkpoint ${past ?? status.checkpoints}, with the values that are stored there. This one stays as it is.`,
      [
        { name: "id", label: "Id of the fork", hint: "One is made if this is empty." },
        { name: "name", label: "With another value for", choices: [["", "nothing"], ...choices] },
        { name: "value", label: "Value, JSON", kind: "json", of: "name", values },
        { name: "effects", label: "Effects that this fiber has carried out since then", choices: [["", "are not repeated: refuse if there are any"], ["repeat", "are carried out again"]] },
      ],
      "Fork",
    );
    if (!given) return;
    const body = { id: given.id || null, at: past ?? null, repeat_effects: given.effects === "repeat" };
    if (given.name) body.set = { [given.name]: given.value };
    const answer = await perform(`fibers/${id}/fork`, body, "Forked", refresh);
    if (answer?.id) go(`#/fiber/${encodeURIComponent(answer.id)}`);
  };
  const isEditable = past === undefined && !["running", "completed", "cancelled"].includes(status.state) && choices.length > 0;
  const canFork = past !== undefined || status.state !== "completed";
  return [isEditable && h("button", { type: "button", onclick: edit }, "Edit"), canFork && h("button", { type: "button", onclick: fork }, "Fork")];
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
        const sure = await ask("Resume this fiber", `It goes on behind “${plain(fiber.at ?? "its start")}” with the stored values, in this code.`, [], "Resume");
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
