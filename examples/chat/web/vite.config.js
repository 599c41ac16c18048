import { defineConfig } from "vite";

// `npm run dev` beside `cargo run --example chat`; `npm run build` for the program to serve by itself.
export default defineConfig({
  esbuild: { jsx: "automatic" },
  server: { proxy: { "/agents": { target: "http://127.0.0.1:8787", ws: true } } },
});
