// The page of the example with the packages of this folder, for the tests: `scripts/web` builds it.
import { join } from "node:path";
import example from "../../../examples/chat/web/vite.config.js";

const root = join(import.meta.dirname, "../../../examples/chat/web");

/** Whether the page asks for a package that is here. */
const isHere = (source, importer) => importer?.startsWith(join(root, "src")) && /^(@ai-sdk\/react|@cloudflare\/ai-chat|agents|ai|react|react-dom)(\/|$)/.test(source);

export default {
  ...example,
  root,
  plugins: [
    {
      name: "packages-of-this-folder",
      enforce: "pre",
      resolveId(source, importer) {
        return isHere(source, importer) ? this.resolve(source, import.meta.filename, { skipSelf: true }) : undefined;
      },
    },
  ],
  build: { ...example.build, outDir: join(import.meta.dirname, "page"), emptyOutDir: true },
};
