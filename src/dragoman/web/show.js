// What came back: values, tables, MCP's content, errors with their faults, and the bytes as they went.
import { html, useState, useMemo, Long, Tabs, Copy, small, prose, link, json, clean, short, count, number, isObject, own, list, sizeOf } from "./kit.js";

const MOST = { rows: 200, columns: 24, blocks: 200, faults: 100 };
const IMAGE = /^image\/(png|jpeg|gif|webp|avif|bmp)$/;
const BASE64 = /^[A-Za-z0-9+/]*={0,2}$/;

// -- values; an array of flat objects is a table, too

function Value({ value }) {
  const names = useMemo(() => {
    const rows = list(value).slice(0, MOST.rows);
    const flat = rows.length > 0 && rows.every((row) => isObject(row) && Object.values(row).every((one) => typeof one !== "object" || one === null));
    return flat ? [...new Set(rows.flatMap(Object.keys))].slice(0, MOST.columns) : [];
  }, [value]);
  if (names.length === 0) return json(value);
  const cell = (one) => html`<td class=${typeof one}>${one !== undefined && html`<${Long} text=${one === null ? "null" : one} most=${300} />`}</td>`;
  const table = () => html`<div class="scroll" tabindex="0"><table><thead><tr>${names.map((one) => html`<th scope="col">${short(one, 60)}</th>`)}</tr></thead><tbody>${value.slice(0, MOST.rows).map((row) => html`<tr>${names.map((one) => cell(own(row, one)))}</tr>`)}</tbody></table></div>${value.length > MOST.rows && html`<p class="note">${number(value.length - MOST.rows)} more rows: see the JSON.</p>`}`;
  return html`<${Tabs} words="Result" tabs=${[[count(value.length, "row"), table], ["JSON", () => json(value)]]} />`;
}

// -- what the server finds wrong, by the path of the field that it names

export function faultsOf({ error, result }) {
  const found = new Map();
  const add = (path, words) => found.set(path, [...(found.get(path) ?? []), words]);
  for (const one of list(own(own(error, "data"), "errors")).slice(0, MOST.faults)) if (typeof own(one, "field") === "string") add(one.field, `${one.message}${"received" in one ? `, received ${short(JSON.stringify(one.received), 200)}` : ""}`);
  if (own(result, "isError")) for (const [, path, words] of String(own(list(result.content)[0], "text")).slice(0, 20_000).matchAll(/^- (\S{1,300}): (.{1,500})$/gm)) add(path, words);
  return found;
}

// -- MCP's content

function Sound({ data, about }) {
  const [state, setState] = useState("");
  const play = async () => {
    try {
      const context = new AudioContext();
      const source = context.createBufferSource();
      source.buffer = await context.decodeAudioData(Uint8Array.from(atob(data), (one) => one.charCodeAt(0)).buffer);
      source.connect(context.destination);
      source.onended = () => (context.close(), setState(""));
      source.start();
      setState("playing");
    } catch {
      setState("this browser cannot play it");
    }
  };
  return html`<p>${small("▶ Play", play)} ${about} <span role="status">${state}</span></p>`;
}

function blob(data, kind) {
  data = String(data);
  const about = `${short(kind ?? "bytes", 60)}, ${count(Math.floor((data.length * 3) / 4), "byte")}`;
  if (IMAGE.test(kind) && BASE64.test(data)) return html`<figure><img src=${`data:${kind};base64,${data}`} alt="The image of the result" /><figcaption>${about}</figcaption></figure>`;
  if (String(kind).startsWith("audio/")) return html`<${Sound} data=${data} about=${about} />`;
  return html`<p class="note">${about}, in base64</p><pre tabindex="0"><${Long} text=${data} most=${400} /></pre>`;
}

function words(text) {
  try {
    if (/^\s*[[{]/.test(text)) return json(JSON.parse(text));
  } catch {}
  return html`<pre tabindex="0"><${Long} text=${text} most=${20_000} /></pre>`;
}

const resource = (one) => html`<div class="block"><p class="note">${link(own(one, "uri"))} ${short(own(one, "mimeType"), 60)}</p>${own(one, "blob") === undefined ? words(own(one, "text")) : blob(one.blob, one.mimeType)}</div>`;

export function block(one) {
  const { type, text, data, mimeType, uri, name, title = name, description } = isObject(one) ? one : {};
  if (type === "text") return words(text);
  if (type === "image" || type === "audio") return blob(data, mimeType);
  if (type === "resource") return resource(one.resource);
  if (type === "resource_link") return html`<p>${link(uri, short(title ?? uri, 200))} <code>${short(uri, 200)}</code> <${Long} text=${description} most=${400} /></p>`;
  return json(one);
}

const message = (one) => html`<div class="block"><p class="note">${short(own(one, "role"), 20)}</p>${[own(one, "content")].flat().slice(0, MOST.blocks).map(block)}</div>`;
export const messages = (all) => list(all).slice(0, MOST.blocks).map(message);

function Content({ result }) {
  const several = (name, title, draw) => list(own(result, name)).length > 0 && [count(result[name].length, title), () => result[name].slice(0, MOST.blocks).map(draw)];
  const values = own(result, "structuredContent") !== undefined && ["Values", () => html`<${Value} value=${result.structuredContent} />`];
  const tabs = [values, several("content", "block", block), several("contents", "content", resource), several("messages", "message", message), ["JSON", () => json(result)]];
  return html`<${Tabs} words="Result" tabs=${tabs.filter(Boolean)} />`;
}

// -- one call

export function Outcome({ outcome: { refused, error, result }, mcp }) {
  const bad = refused || error || own(result, "isError");
  const state = refused ? "✖ Not answered" : error ? `✖ Error ${short(own(error, "code"), 30)}` : bad ? "✖ The tool reports an error" : result === undefined ? "✔ Accepted" : "✔ Result";
  const faults = error ? [...faultsOf({ error })] : [];
  const said = faults.length ? html`<dl>${faults.map(([path, all]) => html`<dt><code>${short(path || "(all)", 200)}</code></dt>${all.map((one) => html`<dd>${clean(one)}</dd>`)}`)}</dl>` : own(error, "data") !== undefined && html`<${Value} value=${error.data} />`;
  const body = refused || error ? html`<p><${Long} text=${refused ?? own(error, "message")} /></p>${said}` : result !== undefined && html`<${mcp ? Content : Value} result=${result} value=${result} />`;
  return html`<div class=${`outcome ${bad ? "bad" : ""}`} role=${bad ? "alert" : "status"}><p class="state">${state}</p>${body}</div>`;
}

const fields = (pairs) => pairs.map(([name, value]) => `${short(name, 80)}: ${name === "Authorization" ? "Bearer •••" : short(value, 500)}\n`).join("");

// What went and came, as it was.
export function bytes({ method, url, sent, body, status, got, text, note, size, ms }) {
  const part = (title, about, head, data) => html`<h4>${title} <span class="note">${about}</span> <${Copy} text=${() => data} /></h4><pre tabindex="0">${head}${"\n"}<${Long} text=${data} most=${8000} /></pre>`;
  const came = ms === undefined ? "waiting…" : `${count(size, "byte")} after ${ms.toFixed(1)} ms`;
  return html`${part("Sent", count(sizeOf(body), "byte"), `${method} ${new URL(url).pathname}\n${fields(Object.entries(sent))}`, body)}${part("Received", came, `${status || ""}\n${fields(got)}`, text || note)}`;
}
