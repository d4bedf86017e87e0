// What the console's views share: numbers as words, the range of time that the timeline sets, tables, dialogs.
import { ask, filter, useAsked } from "./door.js";
import { html, store, useState, useEffect, useLayoutEffect, useRef, useId, hrefOf, button, small, fault, short, list, isObject } from "../kit.js";

export const view = (...inner) => html`<main id="main" tabindex="-1" class="wide">${inner}</main>`;
export const typed = (event) => event.currentTarget.value;

// -- numbers

const round = (n) => (n >= 100 ? n.toFixed(0) : n >= 10 ? n.toFixed(1) : n.toPrecision(2));
export const millis = (n) => (n == null ? "–" : n === 0 ? "0 ms" : n < 0.001 ? "<1 µs" : n < 1 ? `${round(n * 1000)} µs` : n < 1000 ? `${round(n)} ms` : seconds(n / 1000));
export const seconds = (n) => (n < 60 ? `${n < 10 ? n.toFixed(1) : n.toFixed(0)} s` : n < 3600 ? `${Math.floor(n / 60)} min ${Math.floor(n % 60)} s` : `${Math.floor(n / 3600)} h ${Math.floor((n % 3600) / 60)} min`);
export function bytes(n) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  for (; n >= 1000 && at < units.length - 1; at++) n /= 1000;
  return `${at ? round(n) : n} ${units[at]}`;
}
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
export const clock = (time) => CLOCK.format(time * 1000);
export const exact = (time) => `${clock(time)}.${String(Math.floor((time * 1000) % 1000)).padStart(3, "0")}`;

// -- the rows of calls

export const FAILED = new Set(["error", "refused", "timed_out", "lost", "failed", "dropped", "tool_error"]);
export const nameOf = (one) => one.target || one.name || one.method || "–";
export const callerOf = (one) => one.principal || one.remote || "–";
export const stateOf = ({ outcome, code }) => html`<span class=${FAILED.has(outcome) ? "fault" : ""}>${FAILED.has(outcome) ? "✖" : outcome === "cancelled" ? "◼" : "✔"} ${short(outcome, 20)}${code == null ? "" : ` ${short(code, 20)}`}</span>`;

// -- a range of time, that other views keep to

export const range = store(null); // {from, to} in Unix seconds
export const within = (at, from, to = from) => !at || (from <= at.to && to >= at.from);

export function Range({ words, filtered }) {
  const at = range.use();
  return at && html`<p class="range" role="status">⏱ Only from <b>${clock(at.from)}</b> to <b>${clock(at.to)}</b> (${seconds(at.to - at.from)}). ${words} ${filtered && filter.get() && html`What is counted here fits <code>${short(filter.get())}</code>.`} ${small("Clear the range", () => range.set(null))}</p>`;
}

// -- filters, and what is opened

export const words = (value, set) => html`<input type="search" class="narrow" placeholder="Filter by words" aria-label="Filter" value=${value} onInput=${(event) => set(typed(event))} />`;
export const hasAll = (value, texts) => value.toLowerCase().split(/\s+/).every((word) => texts.join("\n").toLowerCase().includes(word));

// A filter of the server's, which is the query of the view's fragment.
export const narrow = (name, value) => (location.hash = hrefOf(name, [], value.trim()));
export function Filter({ name, query, wrong, example, children }) {
  const [text, setText] = useState(query);
  useEffect(() => setText(query), [query]);
  return html`<form class="bar" onSubmit=${(event) => (event.preventDefault(), narrow(name, text))}><input type="search" class="filter" aria-label="Filter" placeholder=${example} value=${text} onInput=${(event) => setText(typed(event))} aria-invalid=${!!wrong} /><button>Filter</button>${query && small("Clear", () => narrow(name, ""))}${children}</form>${wrong && fault(wrong)}`;
}

// What one row has. It takes the focus, and gives it back.
export function Panel({ label, head, tools, close, children }) {
  const title = useRef();
  useEffect(() => {
    const before = document.activeElement;
    title.current.focus();
    return () => before.focus();
  }, []);
  return html`<section class="detail" aria-label=${label} onKeyDown=${(event) => event.key === "Escape" && close()}><div class="bar"><h2 tabindex="-1" ref=${title}>${head}</h2>${tools}${small("Close", close)}</div>${children}</section>`;
}

// Rows that a store keeps, in pages: the first is asked for again and again, the others by `next`, if there are more.
// `name`: of the rows in an answer; `end`: of the place from which the next page follows.
export function usePages(path, name, end) {
  const [found, wrong, again] = useAsked(path, 2);
  const [rest, setRest] = useState();
  useEffect(() => setRest(), [path]);
  const all = [...new Map([...list(rest?.rows), ...list(found?.[name])].map((one) => [(one.store ?? "") + one.id.split(":").pop(), one])).values()];
  const at = (rest ?? found)?.[end];
  const next = () => ask(`${path}&${end}=${encodeURIComponent(at)}`).then((page) => setRest({ rows: [...list(rest?.rows), ...page[name]], [end]: page[end] }), ({ message }) => setRest({ rows: list(rest?.rows), [end]: at, wrong: message }));
  return { found, wrong: wrong || rest?.wrong, again, all, next: at != null && all.length < 2_000 && next };
}

// -- tables

// Rows of one height, of which those in sight are in the document. `columns`: [title, what is drawn of a row, class];
// `opened`: the key of the open one.
export function Rows({ label, columns, rows, keyOf, open, opened, held }) {
  const [[top, height, tall], see] = useState([0, 600, 28]);
  const [active, setActive] = useState();
  const box = useRef();
  const id = useId();
  const look = () => {
    if (!box.current) return; // it scrolled as it went away
    const { scrollTop, clientHeight } = box.current;
    const found = [scrollTop, clientHeight, box.current.querySelector("tr[id]")?.offsetHeight || 28];
    see((before) => (String(before) === String(found) ? before : found));
    held?.(scrollTop > found[2]);
  };
  useLayoutEffect(look, [rows.length === 0]);
  useEffect(() => {
    const watch = new ResizeObserver(look);
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  const from = Math.max(0, Math.min(Math.floor(top / tall) - 8, rows.length - 1));
  const drawn = rows.slice(from, from + Math.min(160, Math.ceil(height / tall) + 16));
  const at = active === undefined ? -1 : rows.findIndex((one) => keyOf(one) === active);
  const go = (n) => {
    n = Math.max(0, Math.min(n, rows.length - 1));
    if (!rows[n]) return;
    setActive(keyOf(rows[n]));
    const head = box.current.querySelector("thead").offsetHeight;
    const [above, below] = [n * tall, (n + 1) * tall + head];
    if (above < box.current.scrollTop) box.current.scrollTop = above;
    else if (below > box.current.scrollTop + box.current.clientHeight) box.current.scrollTop = below - box.current.clientHeight;
  };
  const page = Math.max(1, Math.floor(height / tall) - 2);
  const press = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -rows.length, End: rows.length }[event.key];
    if (by) event.preventDefault(), go((at < 0 && by > 0 ? -1 : at) + by);
    if (event.key === "Enter" && rows[at]) event.preventDefault(), open(rows[at]);
  };
  const pad = (n) => n > 0 && html`<tr aria-hidden="true"><td class="pad" colspan=${columns.length} style=${{ height: `${n}px` }} /></tr>`;
  const row = (one, n) => {
    const key = keyOf(one);
    return html`<tr id=${`${id}-${from + n}`} aria-rowindex=${from + n + 2} aria-selected=${key === opened} class=${key === active ? "active" : ""} onClick=${() => (setActive(key), open(one))}>${columns.map(([, draw, kind]) => html`<td class=${kind}>${draw(one)}</td>`)}</tr>`;
  };
  return html`<div class="rows" ref=${box} onScroll=${look}><table role="grid" tabindex="0" aria-label=${label} aria-rowcount=${rows.length + 1} aria-activedescendant=${at >= from && at < from + drawn.length ? `${id}-${at}` : undefined} onKeyDown=${press}><thead><tr aria-rowindex="1">${columns.map(([title, , kind]) => html`<th scope="col" class=${kind}>${title}</th>`)}</tr></thead><tbody>${pad(from * tall)}${drawn.map(row)}${pad((rows.length - from - drawn.length) * tall)}</tbody></table>${rows.length === 0 && html`<p class="note">Nothing fits.</p>`}</div>`;
}

// A table of few rows. `columns` as above.
export const plain = (label, columns, rows, rowOf = () => ({})) =>
  html`<div class="scroll" tabindex="0" role="region" aria-label=${label}><table><thead><tr>${columns.map(([title, , kind]) => html`<th scope="col" class=${kind}>${title}</th>`)}</tr></thead><tbody>${rows.map((one) => html`<tr ...${rowOf(one)}>${columns.map(([, draw, kind]) => html`<td class=${kind}>${draw(one)}</td>`)}</tr>`)}</tbody></table></div>`;

export const facts = (pairs) => html`<dl class="facts">${pairs.filter(([, value]) => ![undefined, null, false, ""].includes(value)).map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;

// What a call, an error or a message says of itself.
const OF = { Method: "method", Target: "target", About: "about", Service: "service", Wire: "wire", From: "remote", Principal: "principal", Session: "session", Id: "id" };
export const about = (one, ...first) => facts([...first, ...Object.entries(OF).map(([title, name]) => [title, short(one[name], 300)])]);

const WORDS = (name) => short(name.replaceAll("_", " "), 60);
const scalar = (value, name = "") => (typeof value === "number" ? name.endsWith("_bytes") ? bytes(value) : (Number.isInteger(value) ? value.toLocaleString("en") : value.toPrecision(6)) : short(typeof value === "string" ? value : JSON.stringify(value), 300));

// What is not known beforehand: names and values, tables of lists of objects.
export function Rest({ of, deep = 0 }) {
  const pairs = Object.entries(of).slice(0, 200);
  const nested = ([, value]) => typeof value === "object" && value !== null && deep < 4;
  const part = ([name, value]) => {
    const all = Array.isArray(value) ? value : null;
    const names = all?.every(isObject) ? [...new Set(all.slice(0, 200).flatMap(Object.keys))].slice(0, 20) : [];
    const body = names.length ? plain(WORDS(name), names.map((one) => [WORDS(one), (row) => (row[one] === undefined ? "" : scalar(row[one], one))]), all.slice(0, 200)) : all ? html`<p>${all.length ? all.slice(0, 100).map((one) => scalar(one)).join(", ") : "none"}</p>` : html`<${Rest} of=${value} deep=${deep + 1} />`;
    return html`<h2>${WORDS(name)}</h2>${body}`;
  };
  return html`${facts(pairs.filter((one) => !nested(one)).map(([name, value]) => [WORDS(name), scalar(value, name)]))}${pairs.filter(nested).map(part)}`;
}

// What happened each step of some seconds, and how much of it failed: a line with an area of errors below it.
export function Spark({ counts, errors, label }) {
  const most = Math.max(1, ...counts);
  const points = (values) => values.map((one, n) => `${((n / Math.max(1, values.length - 1)) * 100).toFixed(1)},${(23 - (one / most) * 22).toFixed(1)}`).join(" ");
  return html`<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label=${label}><polygon class="failed" points=${`0,24 ${points(errors)} 100,24`} /><polyline points=${points(counts)} /></svg>`;
}

// -- dialogs

// Ask before what cannot be undone, in a dialog; `yes`: what its button says.
const asked = store();
export const sure = (words, yes) => new Promise((answer) => asked.set({ words, yes, answer }));

export function Sure() {
  const one = asked.use();
  const box = useRef();
  useLayoutEffect(() => box.current?.showModal(), [one]);
  const yes = "yes";
  const close = () => (one.answer(box.current.returnValue === yes), asked.set());
  return one && html`<dialog ref=${box} aria-label="Are you sure?" onClose=${close}>${one.words}<div class="bar">${button("Leave it", () => box.current.close())}${button(one.yes, () => box.current.close(yes), { class: "stop" })}</div></dialog>`;
}
