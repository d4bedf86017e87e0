// The documentation: what the services offer, a form to call each part, what came back, and questions of a server.
import { html, store, route, hrefOf, addView, useState, useEffect, useRef, useMemo, Long, Copy, Tabs, button, small, pick, prose, link, json, clean, short, count, number, isObject, own, list, pretty, parse } from "./kit.js";
import { RpcService, McpService, REVISIONS, services, token, questions, history, urlOf } from "./wire.js";
import { KINDS, methodsOf, entriesOf, paramsOf, unknown, search, copies } from "./offers.js";
import { Form, initial } from "./form.js";
import { Outcome, bytes, messages, faultsOf } from "./show.js";

const MOST = { listed: 250, logs: 500, batch: 100 };
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
    put({ entries: client.kind === "mcp" ? entriesOf(found) : methodsOf(found), about });
  } catch (fault) {
    put({ state: fault.message, closed: [401, 403].includes(fault.record?.status) });
  }
}

// -- calls

async function call(client, entry, values, way) {
  const key = `${client.path} ${entry.kind} ${entry.name}`;
  const leave = new AbortController();
  const put = (more) => runs.set((all) => ({ ...all, [key]: { ...all[key], ...more } }));
  put({ leave, progress: undefined, logs: [], outcome: undefined, record: undefined });
  const log = (one) => put({ logs: [...runs.get()[key].logs, one].slice(-MOST.logs) });
  try {
    const { record, ...outcome } = await client[way](entry, paramsOf(entry, values), { signal: leave.signal, progress: (progress) => put({ progress }), log });
    put({ record, outcome });
  } catch (fault) {
    put({ record: fault.record, outcome: { refused: fault.name === "AbortError" ? "Cancelled here." : fault.message } });
  }
  document.querySelector(".field.wrong :is(input, textarea, select)")?.focus();
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

// -- one entry

function Entry({ client, entry, query }) {
  const key = `${client.path} ${entry.kind} ${entry.name}`;
  const fresh = () => initial(entry.schema, entry.root) ?? (entry.raw ? undefined : {});
  const [values, setValues] = useState(() => drafts.get(key) ?? fresh());
  const [asJson, setAsJson] = useState(false);
  const [linked, setLinked] = useState(false);
  const run = runs.use()[key];
  const running = run && !run.outcome;
  const set = (next = entry.raw ? undefined : {}) => (drafts.set(key, next), setValues(next), setLinked(false));
  useEffect(() => {
    try {
      if (query) set(parse(query)), setLinked(true);
    } catch {}
  }, [query]);
  const faults = useMemo(() => faultsOf(run?.outcome ?? {}), [run?.outcome]);
  const go = (way) => running || call(client, entry, values, way);
  const id = entry.kind === "method" ? entry.name : entry.method;
  const forms = useMemo(() => {
    const body = client.requestOf(id, paramsOf(entry, values), 1);
    return copies(client, entry, body, client.headers(body, entry)).map(([title, text]) => [title, () => html`<div class="copy"><${Copy} text=${() => text} /><pre tabindex="0">${clean(text.slice(0, 20_000))}</pre></div>`]);
  }, [entry, values, token.use(), client.session]);
  const here = () => new URL(hrefOf("docs", [client.path, entry.kind, entry.name], JSON.stringify(values)), location).href;
  const none = !entry.raw && same0(entry.schema);
  const types = entry.kind === "method" && own(own(entry.root, "components"), "schemas");
  const contract = [
    entry.result && ["Result", () => json(entry.result)],
    entry.errors.length > 0 && [count(entry.errors.length, "error"), () => entry.errors.map((one) => html`<p><code>${short(one.code, 20)}</code> ${short(one.message, 300)}</p>${one.data && json(one.data)}`)],
    entry.examples.length > 0 && [count(entry.examples.length, "example"), () => entry.examples.map((one) => html`<p>${short(one.name, 200)} ${small("Fill in", () => set(one.values))}</p>${json(one)}`)],
    ["Schema", () => json(entry.schema)],
    types && ["Types", () => json(types)],
    entry.listed && ["As listed", () => json(entry.listed)],
  ];
  return html`<article onKeyDown=${(event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && go("call")}><p class="note">${KINDS[entry.kind][1]}</p><h1><code><${Long} text=${entry.name} most=${300} /></code></h1>${entry.title && html`<p class="title">${short(entry.title, 400)}</p>`}<p>${entry.deprecated && html`<span class="tag warn">deprecated</span>`} ${entry.tags.slice(0, 30).map((one) => html`<span class="tag">${short(one, 60)}</span> `)}</p>
  <div class="columns"><div>${prose(entry.text)}<div class="bar"><h2>Arguments</h2>${!none && html`${small("Clear", () => set(fresh()))}${!entry.raw && small(asJson ? "As a form" : "As JSON", () => setAsJson(!asJson))}`}</div>
  ${linked && html`<p class="notice">⚠ The link that led here filled in these values. Look at them before you call.</p>`}
  ${none ? html`<p class="note">It takes none.</p>` : html`<${Form} schema=${entry.schema} root=${entry.root} value=${values} set=${set} faults=${faults} asJson=${asJson} />`}
  <div class="bar">${button(KINDS[entry.kind][2], () => go("call"), { class: "main", disabled: running, title: "Ctrl+Enter" })}${client.notify && html`${button("Notify", () => go("notify"), { disabled: running })}${button("Add to a batch", () => batch.set((all) => [...all, { client, body: client.requestOf(id, paramsOf(entry, values)) }].slice(-MOST.batch)))}`}${running && button("Cancel", () => run.leave.abort(), { class: "stop" })}<${Copy} text=${here} words="Copy link" /></div></div>
  <div><${Run} run=${run} mcp=${client.kind === "mcp"} /><h2>The same call elsewhere</h2><${Tabs} words="Elsewhere" tabs=${forms} /></div></div>
  <h2>Contract</h2><${Tabs} words="Contract" tabs=${contract.filter(Boolean)} /></article>`;
}
const same0 = (schema) => schema.additionalProperties === false && Object.keys(schema.properties ?? {}).length === 0;

// -- questions of a server

function Question({ params, method, answer }) {
  const elicits = method === "elicitation/create";
  const schema = isObject(params.requestedSchema) ? params.requestedSchema : {};
  const [values, set] = useState(() => initial(schema, schema) ?? {});
  const [text, setText] = useState("");
  const box = useRef(null);
  useEffect(() => box.current.focus(), []);
  const url = elicits && params.mode === "url";
  const area = (words) => html`<textarea aria-label=${words} rows="3" value=${text} onInput=${(event) => setText(typed(event))} />`;
  const said = elicits ? html`${prose(params.message)}${url ? html`<p>Open ${link(params.url)}</p>` : html`<${Form} schema=${schema} root=${schema} value=${values} set=${(next) => set(next ?? {})} />`}`
    : method === "roots/list" ? html`<p>Which folders may it use? Write file: URIs, a line each.</p>${area("Folders")}`
    : html`<p>It wants a model's answer; you are the model.</p>${prose(params.systemPrompt)}${messages(params.messages)}${area("The answer")}`;
  const accept = () => answer(url ? { action: "accept" } : elicits ? { action: "accept", content: values } : method === "roots/list" ? { roots: text.split("\n").filter(Boolean).map((uri) => ({ uri })) } : { role: "assistant", content: { type: "text", text }, model: "a person", stopReason: "endTurn" });
  return html`<section class="question" tabindex="-1" ref=${box} role="group" aria-label="The server asks"><h2>? The server asks</h2>${said}<div class="bar">${button(url ? "I have opened it" : elicits ? "Accept" : "Answer", accept, { class: "main" })}${elicits && button("Decline", () => answer({ action: "decline" }))}${button("Cancel", () => answer(elicits ? { action: "cancel" } : null))}</div></section>`;
}

// -- the views

function Token({ words }) {
  const [text, setText] = useState("");
  const use = (value) => (token.set(value.trim()), setText(""), begin());
  return html`<form class="token" onSubmit=${(event) => (event.preventDefault(), use(text))}>${words && html`<p class="notice" role="alert">⚠ ${clean(words)}</p>`}<label>Token <input type="password" autocomplete="off" value=${text} onInput=${(event) => setText(typed(event))} placeholder="paste it here" /></label><div class="bar"><button class="main">Use it</button>${token.get() && button("Forget it", () => use(""))}</div><p class="note">Each call has it as <code>Authorization: Bearer</code>. Only this tab keeps it, until it is closed or loaded again.</p></form>`;
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
  const row = (one) => html`<li key=${one.name}><a href=${hrefOf("docs", [client.path, one.kind, one.name])} aria-current=${at === one ? "page" : undefined}><code class=${one.deprecated ? "old" : ""}>${short(one.name)}</code>${one.title && html`<span class="note">${short(one.title, 90)}</span>`}</a></li>`;
  return html`<nav aria-label="What is offered" onKeyDown=${move}><input type="search" ref=${box} value=${query} onInput=${(event) => setQuery(typed(event))} placeholder=${`Search ${number(entries.length)}  ( / )`} aria-label="Search" /><div class="list">${Object.entries(KINDS).map(([kind, [title]]) => {
    const mine = drawn.filter((one) => one.kind === kind);
    return mine.length > 0 && html`<h3>${title} <span class="note">${number(found.filter((one) => one.kind === kind).length)}</span></h3><ul>${mine.map(row)}</ul>`;
  })}${found.length === 0 && html`<p class="note">Nothing has these words.</p>`}${found.length > drawn.length && html`<p class="note">${number(found.length - drawn.length)} more: search for them.</p>`}</div></nav>`;
}

function Overview({ client, about, entries }) {
  const [name, setName] = useState("");
  const open = (event) => (event.preventDefault(), (location.hash = hrefOf("docs", [client.path, "method", name])));
  const counts = Object.entries(KINDS).map(([kind, [title]]) => [title, entries.filter((one) => one.kind === kind).length]);
  const facts = [["URL", urlOf(client.path)], ["Revision", client.revision], ["Session", client.session], ...counts].filter(([, one]) => one);
  return html`<p class="note">${client.kind === "mcp" ? "MCP server" : "JSON-RPC service"}</p><h1>${short(about?.title ?? about?.name ?? client.name, 200)} <span class="note">${short(about?.version, 40)}</span></h1>${prose(about?.description)}<dl class="facts">${facts.map(([title, one]) => html`<dt>${title}</dt><dd>${short(one, 200)}</dd>`)}</dl>${client.notify && html`<form onSubmit=${open}><label>Call a method by its name</label><div class="row"><input type="text" class="narrow" aria-label="Name of a method" value=${name} onInput=${(event) => setName(typed(event))} /><button>Open</button></div></form>`}${client.kind === "mcp" && html`<details><summary>What it says of itself</summary>${json({ ...client.info, record: undefined })}</details>`}`;
}

const LEVELS = ["off", "debug", "info", "warning", "error"];

function Picks({ client, all }) {
  const [level, setLevel] = useState(client.level);
  const revisions = REVISIONS.filter((one) => list(client.offered).includes(one));
  const labelled = (words, control) => html`<label class="pick">${words} ${control}</label>`;
  return html`<div class="picks">${all.length > 1 && labelled("Service", pick(all.map((one) => `${one.name}  ${one.path}`), all.indexOf(client), (n) => (location.hash = hrefOf("docs", [all[n].path]))))}${client.kind === "mcp" && html`${labelled("Revision", pick(revisions, revisions.indexOf(client.revision), (n) => load(client, revisions[n])))}${labelled("Log", pick(LEVELS, Math.max(0, LEVELS.indexOf(level)), (n) => setLevel((client.level = n ? LEVELS[n] : ""))))}`}</div>`;
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
    : html`${(state || name) && html`<p class="fault" role="alert">✖ ${clean(state || `There is no ${short(name)} here, or it is not for you.`)}</p>`}${closed && html`<${Token} />`}<${Overview} client=${client} about=${about} entries=${entries} />`;
  return html`<div class="body"><div class="aside"><${Picks} key=${client.path} client=${client} all=${all} /><${List} key=${client.path} client=${client} entries=${entries} at=${entry} /></div><main id="main" tabindex="-1">${asked.map((one) => html`<${Question} key=${one.id} ...${one} />`)}${main}</main></div>`;
}

function Batch() {
  const all = batch.use();
  const [run, setRun] = useState();
  const client = all[0]?.client;
  const mine = all.filter((one) => one.client === client);
  const go = async () => {
    setRun({ logs: [] });
    try {
      const { record, answer } = await client.post(mine.map((one) => one.body), `batch of ${mine.length}`);
      setRun({ logs: [], record, outcome: { result: answer } });
    } catch (fault) {
      setRun({ logs: [], record: fault.record, outcome: { refused: fault.message } });
    }
  };
  return view(html`<h1>A batch</h1>`, all.length === 0 ? html`<p class="note">Fill in the form of a method and choose “Add to a batch”: all calls of a batch go in one message.</p>` : html`<ol>${mine.map((one) => html`<li><code>${short(JSON.stringify(one.body), 300)}</code> ${small("Remove", () => batch.set(all.filter((each) => each !== one)))}</li>`)}</ol>${mine.length < all.length && html`<p class="note">${all.length - mine.length} more are for another service.</p>`}<div class="bar">${button(`Send ${count(mine.length, "call")}`, go, { class: "main" })}</div>`, run && html`<${Run} run=${run} />`);
}

const stateOf = (one) => (one.ms === undefined ? "◌ waiting" : one.note || one.status >= 400 ? `✖ ${one.note || one.status}` : `✔ ${one.status}`);

const History = () => view(html`<h1>What this tab has sent</h1>`, history.use().map((one) => html`<details key=${one.id} class="sent"><summary><time>${one.at.toLocaleTimeString()}</time> <code>${short(one.title)}</code> <span>${stateOf(one)}</span> <span class="note">${one.ms?.toFixed(1)} ms</span></summary>${bytes(one)}</details>`), history.get().length === 0 && html`<p class="note">Nothing yet.</p>`);
const Access = () => view(html`<h1>Who calls</h1><p>${token.use() ? "Calls go with the token that you gave." : "Calls go without a token."}</p><${Token} />`);
const counted = (words, all) => (all.length ? `${words} (${all.length})` : words);

addView("docs", () => "Docs", Docs);
addView("batch", () => counted("Batch", batch.use()), Batch);
addView("history", () => counted("History", history.use()), History);
addView("token", () => (token.use() ? "Token ✔" : "Token"), Access);
