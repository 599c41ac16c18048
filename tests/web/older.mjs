// The cases of react.mjs with older packages, those of the folder `older`: agents 0.3 and @cloudflare/ai-chat 0.0.
import { join } from "node:path";

process.env.HOOKS = join(import.meta.dirname, "older");
await import("./react.mjs");
