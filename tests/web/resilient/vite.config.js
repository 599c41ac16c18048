// The page of away.mjs, with the packages of the folder `HOOKS`: `scripts/web` builds it.
import { join, resolve } from "node:path";

const folder = resolve(process.env.HOOKS ?? join(import.meta.dirname, ".."));

export default {
  root: import.meta.dirname,
  base: "./",
  plugins: [
    {
      name: "packages-under-test",
      enforce: "pre",
      resolveId(source, importer) {
        const isRecipe = /\/resilient\/[^/]+$/.test(importer ?? "") && /^[@\w]/.test(source);
        return isRecipe ? this.resolve(source, join(folder, "take.mjs"), { skipSelf: true }) : undefined;
      },
    },
  ],
  build: { outDir: join(folder, "resilient/page"), emptyOutDir: true, rolldownOptions: { output: { entryFileNames: "page.js", codeSplitting: false } }, chunkSizeWarningLimit: 2000 },
};
