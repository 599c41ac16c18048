// Runs every file of tests, each for as long as its bound lets it, and ends with 1 if a case of any has failed.
//
//   npm test                 all
//   npm test -- --quick      those without a browser and without kills
import { spawn } from "node:child_process";
import { join } from "node:path";

/** Files with their arguments, for how many seconds each may run, and whether it is one of the quick ones. */
const files = [
  ["lex.mjs", 120, true],
  ["wire.mjs", 180, true],
  ["transport.mjs", 180, true],
  ["seven.mjs transport.mjs", 180],
  ["react.mjs", 240, true],
  ["seven.mjs react.mjs", 240],
  ["older.mjs", 240],
  ["http.mjs", 180, true],
  ["seven.mjs http.mjs", 180],
  ["away.mjs", 240, true],
  ["seven.mjs away.mjs", 240],
  ["away.mjs --browser", 3600],
  ["seven.mjs away.mjs --browser", 3600],
  ["kills.mjs", 180],
  ["plain.mjs", 120],
  ["page.mjs", 300],
  ["hostile.mjs", 1200],
  ["inspect.mjs", 400],
  ["faults.mjs", 120],
  ["night.mjs", 120],
  ["many.mjs", 1800],
  ["seven.mjs page.mjs", 300],
];

function perform(file, seconds) {
  return new Promise((resolve) => {
    // A group of its own, so that its browser and its servers end with it.
    const [program, ...args] = file.split(" ");
    const child = spawn(process.execPath, [join(import.meta.dirname, program), ...args], { stdio: ["ignore", "inherit", "inherit"], detached: true });
    const bound = setTimeout(() => {
      console.log(`FAILED ${file} was not through after ${seconds} s`);
      process.kill(-child.pid, "SIGKILL");
    }, seconds * 1000);
    child.once("exit", (code) => {
      clearTimeout(bound);
      resolve(code === 0);
    });
  });
}

const failed = [];
for (const [file, seconds, quick] of files) {
  if (process.argv[2] === "--quick" && !quick) continue;
  const begun = Date.now();
  console.log(`\n${file}`);
  if (!(await perform(file, seconds))) failed.push(file);
  console.log(`-- took ${Math.round((Date.now() - begun) / 1000)} s`);
}
console.log(failed.length === 0 ? "\nall is well" : `\nfailed: ${failed.join(", ")}`);
process.exitCode = failed.length === 0 ? 0 : 1;
