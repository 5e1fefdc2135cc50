// Drives the local store of an installed Letta Code: `node letta.mjs LETTA_JS`.
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

const stores = new Map();

function timed(run) {
  globalThis.gc();
  const cpu = process.cpuUsage();
  const wall = performance.now();
  const found = run();
  const took = performance.now() - wall;
  const used = process.cpuUsage(cpu);
  return { wall: took / 1e3, cpu: (used.user + used.system) / 1e6, ...found };
}

function open(directory, agent) {
  const store = new LocalStore(agent, {
    storageDir: directory,
    seedDefaultAgent: false,
    strictAgentAccess: true,
    strictConversationAccess: false,
  });
  stores.set(directory, store);
  return store;
}

// What a turn has before it asks a model: the resident tail, then the window out of it.
function readWindow(store, conversation, agent) {
  store.residentLocalMessagesForConversation(conversation, agent);
  const wanted = new Set(store.findConversation(conversation, agent).in_context_message_ids);
  const messages = store.listLocalMessages(conversation, agent);
  return messages.filter((message) => wanted.has(message.id));
}

const tasks = {
  // A new conversation with a compiled prompt, as every conversation that was used has one.
  create(store, { conversation, agent, prompt }) {
    return timed(() => store.setCompiledSystemPrompt(conversation, agent, prompt));
  },

  append(store, { conversation, agent, messages }) {
    return timed(() => {
      for (const message of messages) {
        message.id = store.nextLocalMessageId();
        store.pushLocalMessage(conversation, agent, message);
      }
    });
  },

  compact(store, { conversation, agent, keep, summary, stats, prompt }) {
    return timed(() => {
      const messages = store.listLocalMessages(conversation, agent);
      store.compactConversationAll({
        conversationId: conversation,
        agentId: agent,
        summary,
        packedSummary: summary,
        stats,
        remainingMessages: messages.slice(messages.length - keep),
      });
      store.setCompiledSystemPrompt(conversation, agent, prompt);
    });
  },

  // As a process that has just started.
  reopen(_store, { directory, conversation, agent }) {
    return timed(() => {
      const messages = readWindow(open(directory, agent), conversation, agent);
      return { messages: messages.length };
    });
  },
};

for await (const line of createInterface({ input: process.stdin, crlfDelay: Infinity })) {
  const { task, directory, agent, ...request } = JSON.parse(line);
  const store = stores.get(directory) ?? open(directory, agent);
  const answer = tasks[task](store, { directory, agent, ...request });
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
