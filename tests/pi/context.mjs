// What pi itself gives the model of session files:
//   node tests/pi/context.mjs PACKAGE FILE...
// PACKAGE is the directory of an installed pi-coding-agent. Prints a line of JSON for each file: the
// messages of its context as providers are given them, and the ids of the entries on the way to its
// leaf. Works on copies, since pi mends the files that it opens.
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [home, ...files] = process.argv.slice(2);
const { main, exports } = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
const entry = main ?? exports["."].import;
const { SessionManager, convertToLlm } = await import(pathToFileURL(resolve(home, entry)));

for (const file of files) {
  const scratch = mkdtempSync(join(tmpdir(), "pi-context-"));
  const copy = join(scratch, "session.jsonl");
  copyFileSync(file, copy);
  const session = SessionManager.open(copy, scratch, scratch);
  const { messages, model, thinkingLevel } = session.buildSessionContext();
  const context = {
    session: session.getSessionId(),
    name: session.getSessionName() ?? null,
    leaf: session.getLeafId(),
    path: session.getBranch().map((each) => each.id),
    model,
    thinkingLevel,
    messages: convertToLlm(messages),
  };
  console.log(JSON.stringify(context));
  rmSync(scratch, { recursive: true });
}
