import { defineConfig } from "vite";

// `npm run dev` beside `cargo run -p examples-http --example chat`; `npm run build` for the program, which has `dist` built in.
// The names of the files stay, so that the program knows them.
export default defineConfig({
  base: "./",
  esbuild: { jsx: "automatic" },
  build: {
    rolldownOptions: { output: { entryFileNames: "page.js", assetFileNames: "page.[ext]", codeSplitting: false } },
    chunkSizeWarningLimit: 1000,
  },
  server: { proxy: { "/agents": { target: "http://127.0.0.1:8787", ws: true } } },
});
