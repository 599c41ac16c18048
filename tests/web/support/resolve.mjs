// Resolves what the recipes import to the packages under test.
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const folder = process.env.HOOKS ?? join(import.meta.dirname, "..");
const taker = pathToFileURL(join(folder, "take.mjs")).href;

export function resolve(specifier, context, next) {
  const isRecipe = /\/(examples\/chat\/web\/src|tests\/web)\/resilient\//.test(context.parentURL ?? "");
  return next(specifier, isRecipe && /^[@\w]/.test(specifier) ? { ...context, parentURL: taker } : context);
}
