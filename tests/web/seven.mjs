// The cases of another file with version 7 of the `ai` package, which is that of the folder `seven`.
//
//   node seven.mjs http.mjs [part of a case's name]
import { join } from "node:path";

process.env.HOOKS = join(import.meta.dirname, "seven");
const [file] = process.argv.splice(2, 1);
await import(`./${file}`);
