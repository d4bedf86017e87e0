// The documentation: what the services offer, a form to call each part, what came back, and questions of a server.
import { html, store, hrefOf, addView, useState, useEffect, useRef, useMemo, Long, Copy, Tabs, button, small, note, pick, prose, link, json, clean, short, count, number, isObject, own, list, pretty, parse, sizeOf, fault, box } from "./kit.js";
import { RpcService, McpService, REVISIONS, KINDS, services, token, questions, history, place, methodsOf, entriesOf, paramsOf, unknown, search, copies } from "./wire.js";
import { Form, initial } from "./form.js";

const MOST = { listed: 250, logs: 500, batch: 100, rows: 200, columns: 24, blocks: 200, faults: 100 };
const { alone } = place;
const HERE = document.documentElement.dataset;
const clients = store([]);
const catalogs = store({});
const batch = store([]);
const trouble = store("");
const runs = store({});
const drafts = new Map();
const typed = (event) => event.currentTarget.value;
const view = (...inner) => html`<main id="main" tabindex="-1" class="alone">${inner}</main>`;

// -- what there is

export async function begin() {
  trouble.set("");
  let rows = [];
  try {
    rows = await services();
  } catch (fault) {
    if (!HERE.kind) return trouble.set(fault.message);
  }
  if (HERE.kind && !rows.some((one) => one.path === HERE.path)) rows = [{ ...HERE, name: HERE.path }, ...rows];
  if (!rows.length) trouble.set("Nothing that this page can call is served here.");
  catalogs.set({});
  clients.set(rows.map((one) => new { mcp: McpService, jsonrpc: RpcService }[one.kind](one)));
}

async function load(client, revision) {
  const put = (more) => catalogs.set((all) => ({ ...all, [client.path]: { entries: [], ...more } }));
  put({ state: "loading" });
  try {
    if (client.kind === "mcp" && (revision || !client.revision)) await client.connect(revision);
    const found = await client.catalog();
    const about = client.kind === "mcp" ? { ...(client.info.serverInfo ?? own(client.info._meta, "io.modelcontextprotocol/serverInfo")), description: client.info.instructions } : found.info;
    put({ entries: (client.kind === "mcp" ? entriesOf : methodsOf)(found).filter((one) => one.name), about });
  } catch (fault) {
    put({ state: fault.message, closed: [401, 403].includes(fault.record?.status) });
  }
}

// -- calls

const attempt = (put, work) =>
  work.then(
    ({ record, answer, ...outcome }) => put({ record, outcome: answer ? { result: answer } : outcome }),
    (fault) => put({ record: fault.record, outcome: { refused: fault.name === "AbortError" ? "Cancelled" : fault.message } }),
  );

async function call(client, entry, values, way) {
  const key = `${client.path} ${entry.kind} ${entry.name}`;
  const leave = new AbortController();
  const put = (more) => runs.set((all) => ({ ...all, [key]: { ...all[key], ...more } }));
  put({ leave, progress: undefined, logs: [], outcome: undefined, record: undefined });
  const log = (one) => put({ logs: [...runs.get()[key].logs, one].slice(-MOST.logs) });
  await attempt(put, client[way](entry, paramsOf(entry, values), { signal: leave.signal, progress: (progress) => put({ progress }), log }));
  const wrong = document.querySelector(".field.wrong :is(input, textarea, select)");
  wrong ? wrong.focus() : document.querySelector(".outcome")?.scrollIntoView({ block: "nearest" });
}

function Run({ run, mcp }) {
  if (!run) return html`<p class="note idle">The answer will be here.</p>`;
  const { progress, logs, outcome, record } = run;
  return html`<section aria-label="Answer" aria-busy=${!outcome}>${!outcome && html`<p class="state" role="status">◌ Running…</p>`}
  ${progress && html`<p role="status"><progress value=${progress.progress} max=${progress.total ?? 1} aria-label="Progress" /> ${short(progress.progress, 20)}${progress.total ? ` of ${short(progress.total, 20)}` : ""} ${short(progress.message, 300)}</p>`}
  ${outcome && html`<${Outcome} outcome=${outcome} mcp=${mcp} />`}
  ${logs.length > 0 && html`<details open><summary>${count(logs.length, "line")} of the log</summary>${logs.map((one) => html`<p class="log"><b>${short(one.level, 20)}</b> <${Long} text=${typeof one.data === "string" ? one.data : pretty(one.data)} most=${600} /></p>`)}</details>`}
  ${record && html`<details><summary>The bytes that went and came</summary>${bytes(record)}</details>`}</section>`;
}

// -- what came back

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
  const table = () => html`<div class="scroll" tabindex="0"><table><thead><tr>${names.map((one) => html`<th scope="col">${short(one, 60)}</th>`)}</tr></thead><tbody>${value.slice(0, MOST.rows).map((row) => html`<tr>${names.map((one) => cell(own(row, one)))}</tr>`)}</tbody></table></div>${value.length > MOST.rows && note(`${number(value.length - MOST.rows)} more rows: see the JSON.`)}`;
  return html`<${Tabs} tabs=${[[count(value.length, "row"), table], ["JSON", () => json(value)]]} />`;
}

// -- what the server finds wrong, by the path of the field that it names

function faultsOf({ error, result }) {
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
  return html`${note(`${about}, in base64`)}${box(data, 400)}`;
}

function words(text) {
  try {
    if (/^\s*[[{]/.test(text)) return json(JSON.parse(text));
  } catch {}
  return box(text);
}

const resource = (one) => html`<div class="block"><p class="note">${link(own(one, "uri"))} ${short(own(one, "mimeType"), 60)}</p>${own(one, "blob") === undefined ? words(own(one, "text")) : blob(one.blob, one.mimeType)}</div>`;

function block(one) {
  const { type, text, data, mimeType, uri, name, title = name, description } = isObject(one) ? one : {};
  if (type === "text") return words(text);
  if (type === "image" || type === "audio") return blob(data, mimeType);
  if (type === "resource") return resource(one.resource);
  if (type === "resource_link") return html`<p>${link(uri, short(title ?? uri, 200))} <code>${short(uri, 200)}</code> <${Long} text=${description} most=${400} /></p>`;
  return json(one);
}

const message = (one) => html`<div class="block">${note(short(own(one, "role"), 20))}${[own(one, "content")].flat().slice(0, MOST.blocks).map(block)}</div>`;
const messages = (all) => list(all).slice(0, MOST.blocks).map(message);

function Content({ result }) {
  const several = (name, title, draw) => list(own(result, name)).length > 0 && [count(result[name].length, title), () => result[name].slice(0, MOST.blocks).map(draw)];
  const values = own(result, "structuredContent") !== undefined && ["Values", () => html`<${Value} value=${result.structuredContent} />`];
  const tabs = [values, several("content", "block", block), several("contents", "content", resource), several("messages", "message", message), ["JSON", () => json(result)]];
  return html`<${Tabs} tabs=${tabs.filter(Boolean)} />`;
}

// -- one call

function Outcome({ outcome: { refused, error, result }, mcp }) {
  const bad = refused || error || own(result, "isError");
  const state = refused ? "✖ Not answered" : error ? `✖ Error ${short(own(error, "code"), 30)}` : bad ? "✖ The tool reports an error" : result === undefined ? "✔ Accepted" : "✔ Result";
  const faults = error ? [...faultsOf({ error })] : [];
  const said = faults.length ? html`<dl>${faults.map(([path, all]) => html`<dt><code>${short(path || "(all)", 200)}</code></dt>${all.map((one) => html`<dd>${clean(one)}</dd>`)}`)}</dl>` : own(error, "data") !== undefined && html`<${Value} value=${error.data} />`;
  const body = refused || error ? html`<p><${Long} text=${refused ?? own(error, "message")} /></p>${said}` : result !== undefined && html`<${mcp ? Content : Value} result=${result} value=${result} />`;
  return html`<div class=${`outcome ${bad ? "bad" : ""}`} role=${bad ? "alert" : "status"}><p class="state">${state}</p>${body}</div>`;
}

const fields = (pairs) => pairs.map(([name, value]) => `${short(name, 80)}: ${name === "Authorization" ? "Bearer •••" : short(value, 500)}\n`).join("");

// What went and came, as it was.
function bytes({ method, url, sent, body, status, got, text, note, size, ms }) {
  const part = (title, about, head, data) => html`<h4>${title} <span class="note">${about}</span> <${Copy} text=${() => data} /></h4><pre tabindex="0">${head}${"\n"}<${Long} text=${data} most=${8000} /></pre>`;
  const came = ms === undefined ? "waiting…" : `${count(size, "byte")} after ${ms.toFixed(1)} ms`;
  return html`${part("Sent", count(sizeOf(body), "byte"), `${method} ${new URL(url).pathname}\n${fields(Object.entries(sent))}`, body)}${part("Received", came, `${status || ""}\n${fields(got)}`, text || note)}`;
}

// -- one entry

function Entry({ client, entry, query }) {
  const key = `${client.path} ${entry.kind} ${entry.name}`;
  const fresh = () => initial(entry.schema, entry.root) ?? (entry.raw ? undefined : {});
  const [values, setValues] = useState(() => drafts.get(key) ?? fresh());
  const [asJson, setAsJson] = useState(false);
  const [linked, setLinked] = useState(false);
  const [asked, ask] = useState(false);
  const run = runs.use()[key];
  const running = run && !run.outcome;
  const set = (next = entry.raw ? undefined : {}) => (drafts.set(key, next), setValues(next), setLinked(false));
  useEffect(() => {
    try {
      if (query) set(parse(query)), setLinked(true);
    } catch {}
  }, [query]);
  const faults = useMemo(() => faultsOf(run?.outcome ?? {}), [run?.outcome]);
  const go = (way, sure) => running || (ask(entry.destroys && !sure), (entry.destroys && !sure) || call(client, entry, values, way));
  const id = entry.kind === "method" ? entry.name : entry.method;
  const forms = useMemo(() => {
    const body = client.requestOf(id, paramsOf(entry, values), 1);
    return copies(client, entry, body, client.headers(body, entry)).map(([title, text]) => [title, () => html`<div class="copy"><${Copy} text=${() => text} /><pre tabindex="0">${clean(text.slice(0, 20_000))}</pre></div>`]);
  }, [entry, values, token.use(), client.session]);
  const here = () => new URL(hrefOf("docs", [client.path, entry.kind, entry.name], JSON.stringify(values)), location).href;
  const none = entry.schema.additionalProperties === false && Object.keys(entry.schema.properties ?? {}).length === 0;
  const contract = [
    entry.result && ["Result", () => json(entry.result)],
    entry.errors.length > 0 && [count(entry.errors.length, "error"), () => entry.errors.map((one) => html`<p><code>${short(one.code, 20)}</code> ${short(one.message, 300)}</p>${one.data && json(one.data)}`)],
    entry.examples.length > 0 && [count(entry.examples.length, "example"), () => entry.examples.map((one) => html`<p>${short(one.name, 200)} ${small("Fill in", () => set(one.values))}</p>${json(one)}`)],
    ["Schema", () => json(entry.schema)],
    entry.kind === "method" && !entry.raw && ["Types", () => json(entry.root.components)],
    entry.listed && ["As listed", () => json(entry.listed)],
  ];
  return html`<article onKeyDown=${(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && go("call")}>${note(KINDS[entry.kind][1])}<h1><code><${Long} text=${entry.name} most=${300} /></code></h1>${entry.title && html`<p>${short(entry.title, 400)}</p>`}<p>${entry.deprecated && html`<span class="tag warn">deprecated</span>`} ${entry.tags.slice(0, 30).map((one) => html`<span class="tag">${short(one, 60)}</span> `)}</p>
  <div class="columns"><div>${prose(entry.text)}<div class="bar"><h2>Arguments</h2>${!none && html`${small("Clear", () => set(fresh()))}${!entry.raw && small(asJson ? "As a form" : "As JSON", () => setAsJson(!asJson))}`}</div>
  ${linked && html`<p class="notice">⚠ The link that led here filled in these values. Look at them before you call.</p>`}
  ${none ? note("It takes none.") : html`<${Form} schema=${entry.schema} root=${entry.root} value=${values} set=${set} faults=${faults} asJson=${asJson} />`}
  <div class="bar">${button(KINDS[entry.kind][2], () => go("call"), { class: "main", disabled: running, title: "Ctrl+Enter" })}${client.notify && html`${button("Notify", () => go("notify"), { disabled: running })}${!alone && button("Add to a batch", () => batch.set((all) => [...all, { client, body: client.requestOf(id, paramsOf(entry, values)) }].slice(-MOST.batch)))}`}${running && button("Cancel", () => run.leave.abort(), { class: "stop" })}${!alone && html`<${Copy} text=${here} words="Copy link" />`}</div>${asked && html`<p class="notice" role="alert">⚠ It may destroy what is there. ${button("Call it", () => go("call", true), { class: "stop" })} ${button("Leave it", () => ask(false))}</p>`}</div>
  <div><${Run} run=${run} mcp=${client.kind === "mcp"} />${!alone && html`<h2>The same call elsewhere</h2><${Tabs} tabs=${forms} />`}</div></div>
  <h2>Contract</h2><${Tabs} tabs=${contract.filter(Boolean)} /></article>`;
}

// -- questions of a server

export function Question({ params, method, answer }) {
  const elicits = method === "elicitation/create";
  const schema = isObject(params.requestedSchema) ? params.requestedSchema : {};
  const [values, set] = useState(() => initial(schema, schema) ?? {});
  const [text, setText] = useState("");
  const box = useRef(null);
  useEffect(() => box.current.focus(), []);
  const url = elicits && params.mode === "url";
  const area = (words) => html`<textarea aria-label=${words} rows="3" value=${text} onInput=${(event) => setText(typed(event))} />`;
  const said = elicits ? html`${prose(params.message)}${url ? html`<p>Open ${link(params.url)}</p>` : html`<${Form} schema=${schema} root=${schema} value=${values} set=${(next) => set(next ?? {})} />`}`
    : method === "roots/list" ? html`<p>Which folders may it use? A file: URI a line.</p>${area("Folders")}`
    : html`<p>It wants a model's answer; you are the model.</p>${prose(params.systemPrompt)}${messages(params.messages)}${area("The answer")}`;
  const accept = () => answer(elicits ? { action: "accept", ...(!url && { content: values }) } : method === "roots/list" ? { roots: text.split("\n").filter(Boolean).map((uri) => ({ uri })) } : { role: "assistant", content: { type: "text", text }, model: "a person", stopReason: "endTurn" });
  return html`<section class="question" tabindex="-1" ref=${box} role="group" aria-label="The server asks"><h2>? The server asks</h2>${said}<div class="bar">${button(url ? "I have opened it" : elicits ? "Accept" : "Answer", accept, { class: "main" })}${elicits && button("Decline", () => answer({ action: "decline" }))}${button("Cancel", () => answer(elicits ? { action: "cancel" } : null))}</div></section>`;
}

// -- the views

function Token({ words }) {
  const [text, setText] = useState("");
  const use = (value) => (token.set(value.trim()), setText(""), begin());
  return html`<form class="token" onSubmit=${(event) => (event.preventDefault(), use(text))}>${words && html`<p class="notice" role="alert">⚠ ${clean(words)}</p>`}<label>Token <input type="password" autocomplete="off" value=${text} onInput=${(event) => setText(typed(event))} /></label><div class="bar"><button class="main">Use it</button>${token.get() && button("Forget it", () => use(""))}</div><p class="note">Each call has it as <code>Authorization: Bearer</code>. Only this tab keeps it.</p></form>`;
}

function List({ client, entries, at }) {
  const [query, setQuery] = useState("");
  const found = useMemo(() => search(entries, query), [entries, query]);
  const drawn = found.slice(0, MOST.listed);
  const box = useRef(null);
  useEffect(() => {
    const press = (event) => event.key === "/" && !/INPUT|TEXTAREA|SELECT/.test(event.target.tagName) && (event.preventDefault(), box.current?.focus());
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  const move = (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const all = [box.current, ...event.currentTarget.querySelectorAll("a")];
    if (by) event.preventDefault(), all[all.indexOf(document.activeElement) + by]?.focus();
  };
  const row = (one) => html`<li key=${one.name}><a href=${hrefOf("docs", [client.path, one.kind, one.name])} aria-current=${at === one ? "page" : undefined}><code class=${one.deprecated ? "old" : ""}>${short(one.name)}</code><span class="note">${short(one.title || one.text.split("\n")[0], 90)}</span></a></li>`;
  return html`<nav aria-label="What is offered" onKeyDown=${move}><input type="search" ref=${box} value=${query} onInput=${(event) => setQuery(typed(event))} placeholder=${`Search ${number(entries.length)}  ( / )`} aria-label="Search" /><div class="list">${Object.entries(KINDS).map(([kind, [title]]) => {
    const mine = drawn.filter((one) => one.kind === kind);
    return mine.length > 0 && html`<h3>${title} <span class="note">${number(found.filter((one) => one.kind === kind).length)}</span></h3><ul>${mine.map(row)}</ul>`;
  })}${found.length === 0 && note("Nothing has these words.")}${found.length > drawn.length && note(`${number(found.length - drawn.length)} more: search for them.`)}</div></nav>`;
}

function Overview({ client, about, entries }) {
  const [name, setName] = useState("");
  const open = (event) => (event.preventDefault(), (location.hash = hrefOf("docs", [client.path, "method", name])));
  const counts = Object.entries(KINDS).map(([kind, [title]]) => [title, entries.filter((one) => one.kind === kind).length]);
  const facts = [["URL", !alone && place.urlOf(client.path)], ["Revision", client.revision], ["Session", client.session], ...counts].filter(([, one]) => one);
  return html`${note(client.kind === "mcp" ? "MCP server" : "JSON-RPC service")}<h1>${short(about?.title ?? about?.name ?? client.name, 200)} <span class="note">${short(about?.version, 40)}</span></h1>${prose(about?.description)}<dl class="facts">${facts.map(([title, one]) => html`<dt>${title}</dt><dd>${short(one, 200)}</dd>`)}</dl>${client.notify && html`<form onSubmit=${open}><div class="row"><input type="text" class="narrow" aria-label="Name of a method" placeholder="any method" value=${name} onInput=${(event) => setName(typed(event))} /><button>Open</button></div></form>`}`;
}

const LEVELS = ["off", "debug", "info", "warning", "error"];

function Picks({ client, all }) {
  const [level, setLevel] = useState(client.level);
  const revisions = REVISIONS.filter((one) => list(client.offered).includes(one));
  const labelled = (words, control) => html`<label class="pick">${words} ${control}</label>`;
  return html`<div class="picks">${all.length > 1 && labelled("Service", pick(all.map((one) => `${one.name}  ${one.path}`), all.indexOf(client), (n) => (location.hash = hrefOf("docs", [all[n].path]))))}${client.kind === "mcp" && !alone && html`${labelled("Revision", pick(revisions, revisions.indexOf(client.revision), (n) => load(client, revisions[n])))}${labelled("Log", pick(LEVELS, Math.max(0, LEVELS.indexOf(level)), (n) => setLevel((client.level = n ? LEVELS[n] : ""))))}`}</div>`;
}

function Docs({ parts: [path, kind, name], query }) {
  const all = clients.use();
  const found = catalogs.use();
  const asked = questions.use();
  const client = all.find((one) => one.path === path) ?? all.find((one) => one.path === HERE.path) ?? all[0];
  const { state, closed, about, entries = [] } = found[client?.path] ?? { state: "loading" };
  useEffect(() => {
    if (client && !found[client.path]) load(client);
  }, [client, found]);
  const entry = useMemo(() => entries.find((one) => one.kind === kind && one.name === name) ?? (client?.notify && name && state !== "loading" && unknown(name)), [entries, state, kind, name]);
  if (trouble.use()) return view(html`<${Token} words=${trouble.get()} />`);
  const looking = html`<p class="note" role="status">◌ Looking…</p>`;
  if (!client) return view(looking);
  const main = state === "loading" ? looking
    : entry ? html`<${Entry} key=${`${client.path} ${kind} ${name}`} client=${client} entry=${entry} query=${query} />`
    : html`${(state || name) && fault(state || `There is no ${short(name)} here, or it is not for you.`)}${closed && !alone && html`<${Token} />`}<${Overview} client=${client} about=${about} entries=${entries} />`;
  return html`<div class="body"><aside><${Picks} key=${client.path} client=${client} all=${all} /><${List} key=${client.path} client=${client} entries=${entries} at=${entry} /></aside><main id="main" tabindex="-1">${asked.map((one) => html`<${Question} key=${one.id} ...${one} />`)}${main}</main></div>`;
}

function Batch() {
  const all = batch.use();
  const [run, setRun] = useState();
  const client = all[0]?.client;
  const mine = all.filter((one) => one.client === client);
  const put = (more) => setRun({ logs: [], ...more });
  const go = () => (put(), attempt(put, client.post(mine.map((one) => one.body), `batch of ${mine.length}`)));
  return view(html`<h1>A batch</h1>`, all.length === 0 ? note("Fill in the form of a method and choose “Add to a batch”.") : html`<ol>${mine.map((one) => html`<li><code>${short(JSON.stringify(one.body), 300)}</code> ${small("Remove", () => batch.set(all.filter((each) => each !== one)))}</li>`)}</ol><div class="bar">${button(`Send ${count(mine.length, "call")}`, go, { class: "main" })}</div>`, run && html`<${Run} run=${run} />`);
}

const stateOf = (one) => (one.ms === undefined ? "◌ waiting" : one.note || one.status >= 400 ? `✖ ${one.note || one.status}` : `✔ ${one.status}`);

const History = () => view(html`<h1>What this tab has sent</h1>`, history.use().map((one) => html`<details key=${one.id} class="sent"><summary><time>${one.at.toLocaleTimeString()}</time> <code>${short(one.title)}</code> <span>${stateOf(one)}</span> <span class="note">${one.ms?.toFixed(1)} ms</span></summary>${bytes(one)}</details>`));
const Access = () => view(html`<h1>${token.use() ? "Calls go with your token" : "Calls go without a token"}</h1><${Token} />`);

addView("docs", () => "Docs", Docs);
addView("batch", () => `Batch (${batch.use().length})`, Batch);
addView("history", () => `History (${history.use().length})`, History);
addView("token", () => (token.use() ? "Token ✔" : "Token"), Access);
