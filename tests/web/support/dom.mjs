// A document without a browser, and React in it.
import { JSDOM } from "jsdom";
import { WebSocket } from "undici";
import { take } from "./packages.mjs";

const dom = new JSDOM("<!doctype html>", { url: "http://localhost/", pretendToBeVisual: true });
for (const name of ["window", "document", "HTMLElement", "Node", "localStorage", "sessionStorage", "navigator"]) {
  Object.defineProperty(globalThis, name, { value: name === "window" ? dom.window : dom.window[name], configurable: true });
}
globalThis.WebSocket = WebSocket;

export const React = (await take("react")).default;
const { createRoot } = await take("react-dom/client");

/** Renders a component, until the root that comes back is unmounted. `onUncaughtError` takes what it throws. */
export function render(Component, onUncaughtError) {
  const root = createRoot(document.body.appendChild(document.createElement("div")), onUncaughtError && { onUncaughtError });
  root.render(React.createElement(React.Suspense, { fallback: "loading" }, React.createElement(Component)));
  return root;
}
