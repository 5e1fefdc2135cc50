// Drives the local store of an installed Letta Code: `node letta_store.mjs LETTA_JS`.
//
// The bundle exports nothing and starts a command line when it is loaded. Here its text is
// changed on the way in, in memory only: in place of the entry that starts the command line
// stands an export of the class that keeps the local store. What is timed is that class, as
// it was installed; nothing of it is kept here.
//
// One request a line on stdin, one answer a line on stdout. Times are taken around the
// store's own calls, so reading requests costs it nothing.

import { registerHooks } from "node:module";
import { performance } from "node:perf_hooks";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const ENTRY = "// src/standalone-entry.ts";
const OWN_ENTRY = "init_local_store();\nexport { LocalStore };\n";

const bundle = pathToFileURL(process.argv[2]).href;

registerHooks({
  load(url, context, next) {
    const loaded = next(url, context);
    if (url !== bundle) return loaded;
    const source = String(loaded.source);
    const entry = source.lastIndexOf(ENTRY);
    if (entry < 0) throw new Error("this Letta Code has no entry that is known here");
    return { ...loaded, source: source.slice(0, entry) + OWN_ENTRY };
  },
});

const { LocalStore } = await import(bundle);

let store;

function timed(run) {
  globalThis.gc();
  const cpu = process.cpuUsage();
  const wall = performance.now();
  const found = run();
  const took = performance.now() - wall;
  const used = process.cpuUsage(cpu);
  return { wall: took / 1e3, cpu: (used.user + used.system) / 1e6, ...found };
}

function open({ directory, agent }) {
  store = new LocalStore(agent, {
    storageDir: directory,
    seedDefaultAgent: false,
    strictAgentAccess: true,
    strictConversationAccess: false,
  });
}

// What a turn has before it asks a model: the resident tail, then the window out of it.
function readWindow({ conversation, agent }) {
  store.residentLocalMessagesForConversation(conversation, agent);
  const wanted = new Set(store.findConversation(conversation, agent).in_context_message_ids);
  const messages = store.listLocalMessages(conversation, agent);
  return messages.filter((message) => wanted.has(message.id));
}

const tasks = {
  open(request) {
    return timed(() => open(request));
  },

  // A new conversation with a compiled prompt, as every conversation that was used has one.
  create({ conversation, agent, prompt }) {
    return timed(() => store.setCompiledSystemPrompt(conversation, agent, prompt));
  },

  append({ conversation, agent, messages }) {
    return timed(() => {
      for (const message of messages) {
        message.id = store.nextLocalMessageId();
        store.pushLocalMessage(conversation, agent, message);
      }
    });
  },

  compact({ conversation, agent, keep, summary, stats, prompt }) {
    return timed(() => {
      const messages = store.listLocalMessages(conversation, agent);
      const done = store.compactConversationAll({
        conversationId: conversation,
        agentId: agent,
        summary,
        packedSummary: summary,
        stats,
        remainingMessages: messages.slice(messages.length - keep),
      });
      if (prompt) store.setCompiledSystemPrompt(conversation, agent, prompt);
      return { before: done.numMessagesBefore, after: done.numMessagesAfter };
    });
  },

  // As a process that has just started.
  reopen(request) {
    return timed(() => {
      open(request);
      return { messages: readWindow(request).length };
    });
  },
};

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const { task, ...request } = JSON.parse(line);
  process.stdout.write(`${JSON.stringify(tasks[task](request) ?? {})}\n`);
}
