// Elements, without HTML in text: what a fiber holds is never read as markup.

/** Makes an element: `h("a", { href: ".." }, "text", other)`. Children that are null or false are left out. */
export const h = (tag, props, ...children) => filled(document.createElement(tag), props, children);

/** Makes an element of a drawing, as `h`. */
export const svg = (tag, props, ...children) => filled(document.createElementNS("http://www.w3.org/2000/svg", tag), props, children);

function filled(element, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(9).filter((child) => child !== null && child !== undefined && child !== false && child !== ""));
  return element;
}

/** Says something for a few seconds. */
export function toast(text, isError = false) {
  const node = h("p", { class: isError ? "toast error" : "toast" }, text);
  document.querySelector(".toasts").append(node);
  setTimeout(() => node.remove(), isError ? 9000 : 4000);
}

/** A text that a click copies. */
export function copyable(text, shown = text) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      toast("Copied");
    } catch {
      toast("The browser does not let this page copy", true);
    }
  };
  return h("button", { class: "copy mono", type: "button", title: `${text} (click to copy)`, onclick: copy }, shown);
}

let signal;
/** What is asked while `load` begins is given up by this signal. */
export function during(given, load) {
  signal = given;
  try {
    return load();
  } finally {
    signal = undefined;
  }
}

/** Reads JSON of the API. */
export async function api(path) {
  const answer = await fetch(`api/${path}`, { headers: { accept: "application/json" }, signal });
  return read(answer);
}

/** Gives a command. */
export async function command(path, body = {}) {
  const headers = { "content-type": "application/json", "x-forever-inspect": "1" };
  return read(await fetch(`api/${path}`, { method: "POST", headers, body: JSON.stringify(body) }));
}

async function read(answer) {
  const value = await answer.json().catch(() => ({ error: `The server answered ${answer.status}` }));
  if (!answer.ok) throw Object.assign(new Error(value.error), { status: answer.status });
  return value;
}
