// The packages under test: those of this folder, or those of the folder `HOOKS`, such as `older` and `seven`.
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

/** The folder that has them. */
export const folder = resolve(process.env.HOOKS ?? join(import.meta.dirname, ".."));

export const { take, copy } = await import(pathToFileURL(join(folder, "take.mjs")));
