// The console's door: the secret, requests, and the feed.
//
// The secret comes in the fragment of the URL, which no server is sent, and is removed from there at once: from then on
// fragments are views. It is kept in memory, and in this tab's sessionStorage, since a reload has neither; that belongs
// to this tab and this origin, and ends with the tab. Where a guard stands in front, it is a token instead.
import { store, route, decode, useState, useEffect } from "../kit.js";

const ROOT = new URL("../../", import.meta.url);
export const urlOf = (path) => new URL(`api/${path}`, ROOT).href;
const KEPT = "dragoman";
const MOST = { wait: 15_000, line: 1 << 22 };

export const may = store([]); // the scopes of this reader
export const locked = store(""); // why the secret is wanted; "" while it is not
export const link = store("connecting…"); // what is wrong with the feed; "" while lines come
export const now = store({ time: 0, in_flight: 0, ended: 0, errors: 0, calls: [] }); // its last line
export const missed = store(0); // rows that it did not send to this page
export const filter = store(""); // of its rows
export const breaks = store(0); // how often it came back after it had broken
const hearers = new Set();
export const hear = (take) => (hearers.add(take), () => hearers.delete(take));

let secret = "";
try {
  secret = sessionStorage.getItem(KEPT) ?? "";
} catch {}
export const secretOf = () => secret;

// What no header field can hold is no secret, and none is kept.
function keep(given) {
  secret = /^[!-~]*$/.test(given.trim()) ? given.trim() : "";
  try {
    secret ? sessionStorage.setItem(KEPT, secret) : sessionStorage.removeItem(KEPT);
  } catch {}
}

function take() {
  const given = location.hash.slice(1);
  if (!given || given.startsWith("/")) return false;
  keep(decode(given));
  history.replaceState(null, "", "#/now");
  route.set({ view: "now", parts: [], query: "" });
  return true;
}
take();
addEventListener("hashchange", () => take() && unlock(secret));

// Use a secret, or a token, from now on.
export function unlock(given) {
  keep(given);
  locked.set("");
  begin();
}

async function send(path, { body, signal } = {}) {
  const headers = { ...(secret && { Authorization: `Bearer ${secret}` }), ...(body && { "Content-Type": "application/json" }) };
  const answer = await fetch(urlOf(path), { method: body ? "POST" : "GET", headers, ...(body && { body: JSON.stringify(body) }), signal, cache: "no-store", redirect: "error" });
  if (answer.ok) return answer;
  let words = await answer.text();
  try {
    const { error } = JSON.parse(words);
    words = error.message ?? error;
  } catch {}
  words = `${answer.status} ${words}`;
  if ([401, 431].includes(answer.status) || (answer.status === 403 && path === "services")) locked.set(secret ? `The server did not take it: ${words}` : words);
  throw new Error(words);
}

// Ask the console's API. With a body it is a POST.
export const ask = async (path, body) => JSON.parse(await (await send(path, { body })).text());

// What a view asks again and again, `seconds` apart, while it is open: [what came last, what is wrong, ask now].
export function useAsked(path, seconds) {
  const [{ value, fault }, set] = useState({});
  const [round, again] = useState(0);
  useEffect(() => {
    let timer;
    let open = true;
    const next = async () => {
      if (!document.hidden) {
        const found = await ask(path).then((value) => ({ value }), ({ message }) => ({ fault: message }));
        if (!open) return;
        set((before) => ({ ...before, fault: undefined, ...found }));
      }
      timer = setTimeout(next, seconds * 1000);
    };
    next();
    return () => ((open = false), clearTimeout(timer));
  }, [path, seconds, round]);
  return [value, fault, () => again((n) => n + 1)];
}

// -- the feed

let running = new AbortController();

// Read the feed, for ever anew, from now on.
export function begin() {
  running.abort();
  running = new AbortController();
  read(running.signal);
}

// The same, until its first line is there.
export const restart = () =>
  new Promise((next) => {
    const forget = hear(() => (forget(), next()));
    setTimeout(next, 2000);
    begin();
  });

async function read(signal) {
  let wait = 500;
  let broken = false;
  while (!signal.aborted && !locked.get()) {
    try {
      may.set((await ask("services")).may);
      const answer = await send(`feed?q=${encodeURIComponent(filter.get())}`, { signal });
      for await (const line of linesOf(answer.body.getReader())) {
        link.set("");
        if (broken) breaks.set((n) => n + 1);
        [wait, broken] = [500, false];
        if (line) heard(JSON.parse(line));
      }
      link.set("not connected: the server ended the stream");
    } catch (fault) {
      if (signal.aborted || locked.get()) return;
      link.set(`not connected: ${fault.message}`);
    }
    broken = true;
    await new Promise((next) => setTimeout(next, wait));
    wait = Math.min(2 * wait, MOST.wait);
  }
}

async function* linesOf(reader) {
  const decoder = new TextDecoder();
  let left = "";
  for (let part = {}; !part.done; ) {
    part = await reader.read();
    const lines = (left + decoder.decode(part.value, { stream: !part.done })).split("\n");
    left = lines.pop();
    if (left.length > MOST.line) throw (reader.cancel(), new Error("a line is longer than this page reads"));
    yield* lines;
  }
}

function heard({ rows, ...line }) {
  if (line.missed) missed.set((n) => n + line.missed);
  now.set(line);
  for (const take of hearers) take(rows);
}
