// What has ended in the last quarter of an hour, as this page knows it: what was kept when it asked, and what the feed
// has told since.
import { store } from "../kit.js";
import { ask, filter, hear, missed, restart } from "./door.js";

export const SPAN = 900; // seconds
const MOST = { rows: 10_000, page: 1_000 };

export const rows = store([]); // the oldest first
export const state = store(""); // "…" while they are read; else what is wrong
const seen = new Set();
let asked = 0;

export const keyOf = (one) => `${one.id} ${one.ended}`; // a server that was started anew begins its ids again
const fresh = (all) => all.filter((one) => !seen.has(keyOf(one)) && seen.add(keyOf(one)));

function put(all) {
  for (const one of all.splice(0, Math.max(0, all.length - MOST.rows))) seen.delete(keyOf(one));
  rows.set(all);
}

hear((told) => asked && told.length > 0 && put([...rows.get(), ...fresh(told)]));

// Read what fits a filter from the server; the feed tells of the same from then on.
export async function load(words = filter.get()) {
  const mine = ++asked;
  const q = encodeURIComponent(words);
  state.set("…");
  try {
    await ask(`timeline?limit=1&q=${q}`); // it says what is wrong with a filter, before the feed has it
    if (words !== filter.get()) filter.set(words), await restart();
    if (mine !== asked) return;
    seen.clear();
    rows.set([]);
    missed.set(0);
    const since = Date.now() / 1000 - SPAN;
    const older = []; // drawn once, behind the first page
    for (let before = ""; rows.get().length + older.length < MOST.rows; ) {
      const page = (await ask(`timeline?limit=${MOST.page}&q=${q}${before}`)).rows;
      if (mine !== asked) return;
      const more = fresh(page);
      before ? older.push(...more) : put([...more.reverse(), ...rows.get()]);
      if (page.length < MOST.page || more.length === 0 || page.at(-1).ended < since) break;
      before = `&before=${page.at(-1).ended + 1e-6}`; // several end at one time, and are told apart here
    }
    put([...older.reverse(), ...rows.get()]);
    state.set("");
  } catch ({ message }) {
    if (mine === asked) state.set(message);
  }
}
