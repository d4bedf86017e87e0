// What every part of the page shares. Text of others is only ever a text node, cut and cleaned; no part writes markup.
import { h, render } from "./vendor/preact.js";
import { useState, useEffect, useLayoutEffect, useRef, useMemo, useId, useErrorBoundary } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";

export { render, useState, useEffect, useLayoutEffect, useRef, useMemo, useId };
export const html = htm.bind(h);

// A value that views watch: a component that calls `use` is drawn anew when it changes.
export function store(value) {
  const watching = new Set();
  return {
    get: () => value,
    set(next) {
      value = typeof next === "function" ? next(value) : next;
      for (const draw of [...watching]) draw({});
    },
    use() {
      const draw = useState()[1];
      useLayoutEffect(() => (watching.add(draw), () => watching.delete(draw)), []);
      return value;
    },
  };
}

// Each part adds its views. `name`: in the fragment, "#/name/..."; `title`: a function
// of its tab's text, which may use stores; `Main`: gets the `parts` of the fragment behind the name, and its `query`.
export const views = new Map();
export const addView = (name, title, Main) => views.set(name, { name, title, Main });

export const decode = (part) => {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
};
function read() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const [view, ...parts] = path.split("/").map(decode);
  return { view, parts, query: query && decode(query) };
}
export const route = store(read());
addEventListener("hashchange", () => route.set(read()));
export const hrefOf = (view, parts, query) =>
  `#/${[view, ...parts].map((part) => encodeURIComponent(part.toWellFormed())).join("/")}${query ? `?${encodeURIComponent(query)}` : ""}`;

// -- values

// Integers that a double cannot hold stay as they were written.
export const integer = (text) => (Number.isSafeInteger(Number(text)) ? Number(text) : (JSON.rawJSON?.(text) ?? Number(text)));
export const parse = (text) =>
  JSON.parse(text, (_, value, from) => (typeof value === "number" && /^-?\d+$/.test(from?.source) ? integer(from.source) : value));
export const isRaw = (value) => JSON.isRawJSON?.(value) === true;
export const isObject = (value) => typeof value === "object" && value !== null && !Array.isArray(value) && !isRaw(value);
export const own = (object, name) => (isObject(object) && Object.hasOwn(object, name) ? object[name] : undefined);
export const list = (value) => (Array.isArray(value) ? value : []);
export const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
export const pretty = (value) => JSON.stringify(value, null, 2) ?? "";
export const label = (value) => (typeof value === "string" && value ? value : JSON.stringify(value));
export const sizeOf = (text) => new TextEncoder().encode(text).length;

// -- text of others

const ODD = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;

// Characters that are not seen, or turn others around, are shown by their code points.
export const clean = (text) =>
  String(text).replaceAll("\r\n", "\n").replace(ODD, (one) => `⟨U+${one.codePointAt(0).toString(16).toUpperCase()}⟩`);
export const short = (text, most = 120) => {
  text = String(text ?? "");
  return clean(text.length > most ? `${text.slice(0, most)}…` : text);
};
export const number = (n) => n.toLocaleString("en");
export const count = (n, one) => `${number(n)} ${one}${n === 1 ? "" : "s"}`;

// Text of any length: its beginning, and the rest where it is wanted. `draw`: makes of text what is shown.
export function Long({ text, most = 4000, draw = clean }) {
  const [all, setAll] = useState(false);
  text = String(text ?? "");
  if (all || text.length <= most) return html`<bdi>${draw(text)}</bdi>`;
  return html`<bdi>${draw(text.slice(0, most))}</bdi>… ${button(`show all ${number(text.length)} characters`, () => setAll(true), { class: "plain" })}`;
}

// A docstring: text with \`code\`, and links.
const INLINE = /(`[^`\n]{1,400}`|https:\/\/[^\s<>"'`)\]]{1,2000})/;
const inline = (text) =>
  text.split(INLINE).map((part, n) => (n % 2 === 0 ? clean(part) : part[0] === "`" ? html`<code>${clean(part.slice(1, -1))}</code>` : link(part)));
export const prose = (text, most = 6000) => text && html`<div class="prose"><${Long} text=${text} most=${most} draw=${inline} /></div>`;

// A link that a server named: to https alone, which does not learn from where. Any other URL is text.
export function link(url, words = short(url, 300)) {
  let good;
  try {
    good = new URL(url);
  } catch {}
  const safe = good?.protocol === "https:" && !good.username && !good.password;
  return safe ? html`<a href=${good.href} rel="noreferrer" target="_blank">${words}</a>` : html`<span>${words}</span>`;
}

export const box = (text, most = 20_000) => html`<pre tabindex="0"><${Long} text=${text} most=${most} /></pre>`;
export const json = (value) => box(pretty(value));

// -- controls

export const button = (words, onClick, more) => html`<button type="button" onClick=${onClick} ...${more}>${words}</button>`;
export const fault = (words, more) => html`<p class="fault" role="alert" ...${more}>✖ ${clean(words)}</p>`;
export const note = (words) => html`<p class="note">${words}</p>`;
export const small = (words, onClick, more) => button(words, onClick, { class: "small", ...more });

// A choice of one. `options`: [value, words]; `at`: the index of the chosen one.
export const pick = (options, at, set, more) =>
  html`<select value=${at} onChange=${(event) => set(Number(event.currentTarget.value))} ...${more}>${options.map((words, n) => html`<option value=${n} selected=${n === at}>${short(words)}</option>`)}</select>`;

export function Copy({ text, words = "Copy" }) {
  const [done, setDone] = useState("");
  const copy = () => navigator.clipboard.writeText(text()).then(() => setDone("Copied"), () => setDone("Not allowed"));
  return small(done || words, copy, { onBlur: () => setDone(""), "aria-live": "polite" });
}

// Parts of which one is shown. `tabs`: [title, draw].
export function Tabs({ tabs }) {
  const [at, setAt] = useState(0);
  const shown = Math.min(at, tabs.length - 1);
  return html`<div class="tabs" role="group">${tabs.map(([title], n) => button(title, () => setAt(n), { "aria-pressed": n === shown }))}</div>${tabs[shown][1]()}`;
}

// -- the frame

const Tab = ({ name, title, current }) => html`<a href=${hrefOf(name, [])} aria-current=${current ? "page" : undefined}>${title()}</a>`;

// What cannot be drawn takes no other view along.
function Shown({ Main, ...given }) {
  const [wrong] = useErrorBoundary();
  return wrong ? html`<main class="alone">${fault(`This cannot be shown: ${wrong.message}`)}</main>` : html`<${Main} ...${given} />`;
}

// The head, and the view that the fragment names, else `home`. `Above`: what is between them.
function Frame({ home, Above }) {
  const { view, parts, query } = route.use();
  const shown = views.get(view) ?? views.get(home);
  return html`${small("Skip to the content", () => document.getElementById("main").focus(), { class: "skip" })}<header><b>dragoman</b><nav aria-label="Views">${[...views.values()].map((one) => html`<${Tab} key=${one.name} ...${one} current=${one === shown} />`)}</nav></header>${Above && html`<${Above} />`}<${Shown} key=${[view, ...parts].join()} Main=${shown.Main} parts=${parts} query=${query} />`;
}

export function draw(given) {
  const page = document.getElementById("page");
  page.replaceChildren();
  render(html`<${Frame} ...${given} />`, page);
}
