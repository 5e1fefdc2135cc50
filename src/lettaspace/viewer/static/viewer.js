// What a page does besides being read: keys, following what is written, opening summaries in
// place. Everything works without it, in more steps.
"use strict";

const policy = window.trustedTypes
  ? trustedTypes.createPolicy("lettaspace", { createHTML: (text) => text })
  : { createHTML: (text) => text };

const parsed = (text) => new DOMParser().parseFromString(policy.createHTML(text), "text/html");

async function fetched(address) {
  const answer = await fetch(address, { credentials: "same-origin", redirect: "error" });
  if (!answer.ok) throw new Error(String(answer.status));
  return parsed(await answer.text());
}

const within = (element) => element instanceof Element
  && element.closest("input, textarea, select, [contenteditable]") !== null;

// --- following what is written

const live = document.body.dataset.live;

function concerns(change) {
  if (live === "" || change.everything) return true;
  return change.conversations.includes(live);
}

// Messages that are as they were keep their place, what was opened in them, and the focus.
function mergeMessages(old, fresh) {
  const list = old.querySelector(".messages");
  const wanted = fresh.querySelector(".messages");
  if (!list || !wanted) {
    old.replaceChildren(...fresh.childNodes);
    return 0;
  }
  const known = new Map([...list.children].map((each) => [each.id, each]));
  const version = (article) => [article, ...article.querySelectorAll("[data-version]")]
    .map((each) => each.dataset.version).join(" ") + article.className;
  let added = 0;
  const merged = [...wanted.children].map((article) => {
    const same = known.get(article.id);
    if (!same) added += 1;
    return same && version(same) === version(article) ? same : article;
  });
  // Moving an element that stays would fold it and take its focus.
  let place = list.firstElementChild;
  for (const article of merged) {
    if (article === place) place = place.nextElementSibling;
    else list.insertBefore(article, place);
  }
  while (place) {
    const next = place.nextElementSibling;
    place.remove();
    place = next;
  }
  return added;
}

// Anything else is replaced; a link that had the focus has it still, and folds stay open.
function refill(old, fresh) {
  const held = old.contains(document.activeElement) ? document.activeElement : null;
  const open = [...old.querySelectorAll("details")].map((each) => each.open);
  old.replaceChildren(...fresh.childNodes);
  old.querySelectorAll("details").forEach((each, at) => { each.open = open[at] ?? false; });
  if (!held) return;
  const same = [...old.querySelectorAll(held.localName)].find(
    (each) => each.getAttribute("href") === held.getAttribute("href"));
  same?.focus({ preventScroll: true });
}

function merge(page) {
  let added = 0;
  for (const old of document.querySelectorAll("[data-region]")) {
    const fresh = page.querySelector(`[data-region="${CSS.escape(old.dataset.region)}"]`);
    if (!fresh || old.isEqualNode(fresh)) continue;
    if (old.dataset.region === "messages") added = mergeMessages(old, fresh);
    else refill(old, fresh);
  }
  return added;
}

const atEnd = () => innerHeight + scrollY >= document.documentElement.scrollHeight - 80;

function announce(added) {
  document.querySelector(".live")?.remove();
  const note = document.createElement("p");
  note.className = "live";
  note.setAttribute("role", "status");
  const link = document.createElement("a");
  link.href = "#";
  link.textContent = added === 1 ? "1 new message" : `${added} new messages`;
  link.addEventListener("click", (event) => {
    event.preventDefault();
    note.remove();
    document.querySelector(".messages > :last-child")?.scrollIntoView();
  });
  note.append(link);
  document.querySelector("main").append(note);
}

let waiting = 0; // new messages below what one sees
let busy = false;
let again = false;

async function refresh() {
  const address = document.body.dataset.liveUrl ?? (live === "" ? location.href : null);
  if (!address) return;
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  try {
    do {
      again = false;
      const wasAtEnd = atEnd();
      const page = await fetched(address);
      // A page that was empty learns from which message on it is to follow.
      if (page.body.dataset.liveUrl) document.body.dataset.liveUrl = page.body.dataset.liveUrl;
      const added = merge(page);
      if (added && live !== "") {
        if (wasAtEnd) scrollTo({ top: document.documentElement.scrollHeight });
        else announce((waiting += added));
      }
    } while (again);
  } catch {
    // The next change tries again.
  } finally {
    busy = false;
  }
}

if (live !== undefined) {
  // From when this page was made: what was written since is told first.
  const source = new EventSource(`/live?since=${document.body.dataset.version}`);
  source.addEventListener("change", (event) => {
    if (concerns(JSON.parse(event.data))) refresh();
  });
  addEventListener("scroll", () => {
    if (waiting && atEnd()) {
      waiting = 0;
      document.querySelector(".live")?.remove();
    }
  }, { passive: true });
  addEventListener("pagehide", () => source.close());
}

// --- a link to something inside a fold opens it

function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let fold = target?.closest("details"); fold; fold = fold.parentElement?.closest("details")) {
    fold.open = true;
  }
  target?.scrollIntoView();
}
if (location.hash) reveal();
addEventListener("hashchange", reveal);

// --- what a summary covers, opened in place

document.addEventListener("click", async (event) => {
  const link = event.target instanceof Element && event.target.closest("a[data-open]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
  event.preventDefault();
  const holder = link.closest("p");
  const shown = holder.nextElementSibling;
  if (shown?.classList.contains("opened")) {
    shown.remove();
    link.removeAttribute("aria-expanded");
    return;
  }
  try {
    const page = await fetched(link.href);
    const opened = document.createElement("div");
    opened.className = "opened";
    opened.append(...page.querySelector('[data-region="messages"]').childNodes);
    // What is on this page already keeps its name to itself.
    for (const each of opened.querySelectorAll("[id]")) {
      if (document.getElementById(each.id)) each.removeAttribute("id");
    }
    const more = page.querySelector('.pager [rel="next"]');
    if (more) {
      const rest = document.createElement("p");
      more.textContent = "More of what it covers";
      rest.append(more);
      opened.append(rest);
    }
    holder.after(opened);
    link.setAttribute("aria-expanded", "true");
  } catch {
    location.assign(link.href);
  }
});

// --- keys

const KEYS = [
  ["/", "search"], ["j", "next message or entry"], ["k", "previous message or entry"],
  ["o", "open or fold what is in it"], ["Enter", "open the entry"], ["n", "next page"],
  ["p", "previous page"], ["t", "transcript or window"], ["g", "first page or entry"],
  ["G", "latest page or last entry"],
  ["?", "these keys"],
];

const items = () => [...document.querySelectorAll(".m, a[data-item]")].filter(
  (each) => !each.closest(".opened .opened"));

function step(by) {
  const all = items();
  if (!all.length) return;
  const now = document.activeElement?.closest(".m, a[data-item]");
  let at = all.indexOf(now);
  if (at < 0) {
    // From what stands at the top of the window.
    at = all.findIndex((each) => each.getBoundingClientRect().bottom > 90) - (by > 0 ? 1 : 0);
  }
  show(all[Math.min(Math.max(at + by, 0), all.length - 1)]);
}

function show(item) {
  item?.focus({ preventScroll: true });
  item?.scrollIntoView({ block: item.matches(".m") ? "start" : "nearest" });
}

function fold() {
  const now = document.activeElement?.closest(".m");
  const folds = [...(now?.querySelectorAll("details") ?? [])];
  const open = folds.some((each) => !each.open);
  for (const each of folds) each.open = open;
}

// One that has closed stays in the page until its event has come.
function shownDialog() {
  return document.querySelector("dialog[open]");
}

function help() {
  const shown = shownDialog();
  if (shown) {
    shown.remove();
    return;
  }
  const dialog = document.createElement("dialog");
  dialog.setAttribute("aria-label", "Keys");
  const list = document.createElement("dl");
  list.className = "facts keys";
  for (const [key, what] of KEYS) {
    const term = document.createElement("dt");
    const name = document.createElement("kbd");
    name.textContent = key;
    term.append(name);
    const about = document.createElement("dd");
    about.textContent = what;
    list.append(term, about);
  }
  const close = document.createElement("button");
  close.textContent = "Close";
  close.addEventListener("click", () => dialog.close());
  dialog.append(list, close);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function follow(selector) {
  const link = document.querySelector(selector);
  link?.click();
  return link !== null;
}

addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (within(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (shownDialog() && event.key !== "?") return;
  const actions = {
    "/": () => document.getElementById("find").focus(),
    j: () => step(1),
    k: () => step(-1),
    o: fold,
    n: () => follow('.pager a[rel="next"]'),
    p: () => follow('.pager a[rel="prev"]'),
    t: () => follow(".tabs a:not([aria-current])"),
    g: () => follow('[data-turn="first"]') || show(items().at(0)),
    G: () => follow('[data-turn="last"]') || show(items().at(-1)),
    "?": help,
  };
  const action = Object.hasOwn(actions, event.key) ? actions[event.key] : null;
  if (!action) return;
  event.preventDefault();
  action();
});
