// How the page calls: one POST and what comes back, kept as it went; JSON-RPC; MCP in both eras. What a service offers,
// as entries of one form, and a call as text for elsewhere. Every request goes to the page's own origin, with the token
// that its reader gave, and to where `place` says: the console calls through a door of its own.
import { store, parse, isObject, own, list, pretty } from "./kit.js";
import { resolve } from "./form.js";

const ROOT = new URL("../../", import.meta.url);
export const place = {
  urlOf: (path) => new URL(path.slice(1).split("/").map(encodeURIComponent).join("/"), ROOT).href,
  services: new URL("docs/services", ROOT).href,
};
const MOST = { kept: 200, text: 1 << 17, read: 1 << 26, questions: 20, rounds: 32, pages: 200, deep: 16, entries: 20_000 };
export const token = store("");
export const questions = store([]);
export const history = store([]);

const refused = (words, record) => Object.assign(new Error(words), { record });

let serial = 0;

// Send a request and return its record, with the text of the answer. `heard`: gets each message of a stream.
export async function send(url, { method = "POST", headers, body = "", signal, title, heard, quiet }) {
  const sent = { ...headers, ...(token.get() && { Authorization: `Bearer ${token.get()}` }) };
  const record = { id: ++serial, title, at: new Date(), method, url, sent, body, size: 0, status: 0, got: [], text: "", note: "" };
  if (!quiet) history.set((all) => [record, ...all].slice(0, MOST.kept));
  const began = performance.now();
  try {
    const answer = await fetch(record.url, { method, headers: sent, ...(body && { body }), signal, redirect: "error", cache: "no-store" });
    record.status = answer.status;
    record.got = [...answer.headers];
    const streams = /^text\/event-stream/.test(answer.headers.get("content-type"));
    const [decoder, reader] = [new TextDecoder(), answer.body?.getReader()];
    let left = "";
    for (let part = { done: !reader }; !part.done; ) {
      part = await reader.read();
      record.size += part.value?.length ?? 0;
      if (record.size > MOST.read) throw (reader.cancel(), new Error("it is longer than this page reads"));
      const piece = decoder.decode(part.value, { stream: !part.done });
      if (!streams || record.text.length < MOST.text) record.text += piece;
      if (!streams) continue;
      const events = (left + piece).split(/\r?\n\r?\n/);
      left = events.pop();
      for (const event of events) {
        const data = event.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart()).join("\n");
        if (data) heard?.(parse(data));
      }
      history.set((all) => [...all]);
    }
    if (!streams) record.whole = record.text;
  } catch (fault) {
    record.note = fault.name === "AbortError" ? "cancelled" : `no answer: ${fault.message}`;
    throw fault.name === "AbortError" ? fault : refused(record.note, record);
  } finally {
    record.text = record.text.slice(0, MOST.text);
    record.ms = performance.now() - began;
    history.set((all) => [...all]);
  }
  return record;
}

// The answer in a body. Raises an error for none, in the words of the server, and of what it demands.
function answerOf(record) {
  let found;
  try {
    found = parse(record.whole);
  } catch {}
  delete record.whole; // which may be long, and the history is
  const error = own(found, "error");
  const challenge = record.got.find(([name]) => name === "www-authenticate")?.[1];
  if (found === undefined || record.status === 401 || record.status === 403 || (record.status >= 400 && !("jsonrpc" in found)))
    throw refused(["The server answers", record.status, error?.message ?? error ?? "", challenge ? `(WWW-Authenticate: ${challenge})` : ""].join(" "), record);
  return found;
}

export const services = async () =>
  answerOf(await send(place.services, { method: "GET", quiet: true })).services;

const outcome = (record, answer) => ({ record, ...(own(answer, "error") ? { error: answer.error } : { result: own(answer, "result") }) });
const message = (method, params, id = ++serial) => ({ jsonrpc: "2.0", ...(id && { id }), method, ...(params !== undefined && { params }) });

export class RpcService {
  constructor(row) {
    Object.assign(this, row);
  }
  requestOf = message;
  headers = () => ({ "Content-Type": "application/json", Accept: "application/json" });

  async post(body, title, signal, quiet) {
    const record = await send(place.urlOf(this.path), { headers: this.headers(), body: text(body), title, signal, quiet });
    return { record, answer: record.status < 300 && !record.whole ? undefined : answerOf(record) };
  }
  async call({ name }, params, { signal }) {
    const { record, answer } = await this.post(message(name, params), name, signal);
    return outcome(record, answer);
  }
  notify = ({ name }, params) => this.post(message(name, params, 0), `${name} (notification)`);

  async catalog() {
    const { answer } = await this.post(message("rpc.discover"), "rpc.discover", undefined, true);
    if (answer.error) throw refused(`It does not describe itself (${answer.error.message}). Call its methods by name.`);
    return answer.result;
  }
}

// -- MCP

const META = "io.modelcontextprotocol/";
const CLIENT = { name: "dragoman-page", version: "1" };
export const REVISIONS = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26"];
const FORMS = { form: {}, url: {} };
const KNOWN = ["elicitation/create", "sampling/createMessage", "roots/list"];

export class McpService {
  constructor(row) {
    Object.assign(this, row);
    this.forget();
  }
  forget() {
    this.listening?.abort();
    Object.assign(this, { revision: null, offered: REVISIONS, session: null, opening: null, level: this.level ?? "", info: {} });
  }
  get stateless() {
    return this.revision === REVISIONS[0];
  }
  requestOf = (method, params, id, more) => {
    const mine = this.stateless && {
      [`${META}protocolVersion`]: this.revision,
      [`${META}clientInfo`]: CLIENT,
      [`${META}clientCapabilities`]: { elicitation: FORMS, sampling: {}, roots: {} },
      ...(this.level && { [`${META}logLevel`]: this.level }),
    };
    return message(method, { ...params, ...((mine || more) && { _meta: { ...more, ...mine } }) }, id);
  };
  headers(body, entry) {
    const found = { "Content-Type": "application/json", Accept: "application/json, text/event-stream" };
    if (this.session) found["Mcp-Session-Id"] = this.session;
    if (this.stateless || (this.session && this.revision !== "2025-03-26")) found["MCP-Protocol-Version"] = this.revision;
    if (!this.stateless || !body.method) return found;
    found["Mcp-Method"] = body.method;
    const name = body.params.name ?? body.params.uri;
    if (name) found["Mcp-Name"] = headerValue(name);
    if (entry?.kind === "tool") mirror(entry.schema, body.params.arguments, found);
    return found;
  }

  // Send a message and return its answer; what comes before it on a stream goes to `take`.
  async post(body, title, { entry, signal, quiet = true, ...hooks } = {}) {
    let answer;
    const heard = (one) => (one.method === undefined && one.id === body.id ? (answer = one) : this.take(one, hooks, signal));
    const record = await send(place.urlOf(this.path), { headers: this.headers(body, entry), body: text(body), title: title ?? body.method, signal, quiet, heard });
    if (record.whole) answer = answerOf(record);
    return { record, answer };
  }
  async ask(method, params) {
    const { record, answer } = await this.post(this.requestOf(method, params));
    if (!answer?.result) throw refused(`${method}: ${answer?.error?.message ?? "no answer"}`, Object.assign(record, { error: answer?.error }));
    return { record, ...answer.result };
  }

  // Connect in a revision; without one, in the newest that the server offers.
  async connect(revision) {
    this.forget();
    this.revision = revision ?? REVISIONS[0];
    if (this.stateless)
      try {
        this.info = await this.ask("server/discover");
        return (this.offered = list(this.info.supportedVersions));
      } catch (fault) {
        const offered = list(fault.record?.error?.data?.supported);
        if (revision || !REVISIONS[1] || [401, 403].includes(fault.record?.status)) throw fault;
        this.revision = REVISIONS.slice(1).find((one) => offered.includes(one)) ?? REVISIONS[1];
      }
    await this.open();
  }
  open() {
    return this.stateless ? null : (this.opening ??= this.initialize().catch((fault) => ((this.opening = null), Promise.reject(fault))));
  }
  async initialize() {
    this.session = null;
    const capabilities = { sampling: {}, roots: {}, ...(this.revision > "2025-06" && { elicitation: this.revision === REVISIONS[1] ? FORMS : {} }) };
    this.info = await this.ask("initialize", { protocolVersion: this.revision, capabilities, clientInfo: CLIENT });
    this.session = this.info.record.got.find(([name]) => name === "mcp-session-id")?.[1];
    this.revision = this.info.protocolVersion;
    await this.post(this.requestOf("notifications/initialized", undefined, 0));
    this.listening = new AbortController(); // what no call asked for comes on a stream of its own
    const { "Content-Type": _, ...headers } = { ...this.headers({}), Accept: "text/event-stream" };
    send(place.urlOf(this.path), { method: "GET", headers, title: "the session's stream", signal: this.listening.signal, quiet: true, heard: (one) => this.take(one, {}) }).catch(() => {});
  }

  // Take what a server sends of its own accord: progress, a line of the log, a question.
  take({ id, method, params = {} }, hooks, signal) {
    if (method === "notifications/progress") hooks.progress?.(params);
    if (method === "notifications/message") hooks.log?.(params);
    if (id === undefined || !method) return;
    const said = KNOWN.includes(method) ? ask({ method, params }, signal) : method === "ping" ? {} : null;
    Promise.resolve(said).then((result) => this.post({ jsonrpc: "2.0", id, ...(result ? { result } : { error: { code: -32601, message: "Not answered" } }) }, `answer to ${method}`, { quiet: false }));
  }

  async catalog() {
    await this.open();
    const found = {};
    for (const [method, member] of [["tools/list", "tools"], ["resources/list", "resources"], ["resources/templates/list", "resourceTemplates"], ["prompts/list", "prompts"]]) {
      if (!own(this.info.capabilities, method.split("/")[0])) continue;
      found[member] = [];
      let cursor;
      for (let n = 0; n < MOST.pages && cursor !== null; n++) {
        const page = await this.ask(method, cursor && { cursor });
        found[member].push(...list(page[member]));
        cursor = page.nextCursor ?? null;
      }
    }
    return found;
  }

  // Call for an entry, through all rounds of questions. `hooks`: signal, progress, log.
  async call(entry, params, hooks) {
    await this.open();
    if (!this.stateless && this.level && own(this.info.capabilities, "logging")) await this.ask("logging/setLevel", { level: this.level });
    let more;
    for (let round = 0; round < MOST.rounds; round++) {
      const id = ++serial;
      const leave = () => this.stateless || this.post(this.requestOf("notifications/cancelled", { requestId: id }, 0), undefined, { quiet: false });
      hooks.signal.addEventListener("abort", leave);
      const { record, answer } = await this.post(this.requestOf(entry.method, { ...params, ...more }, id, { progressToken: id }), entry.name, { ...hooks, entry, quiet: false })
        .finally(() => hooks.signal.removeEventListener("abort", leave));
      if (record.status === 404) this.opening = null; // the session is over: the next call begins another
      if (!answer) throw refused("There came no answer", record);
      const { resultType, inputRequests, requestState } = own(answer, "result") ?? {};
      if (resultType !== "input_required") return outcome(record, answer);
      const given = [];
      for (const [key, question] of Object.entries(inputRequests ?? {})) given.push([key, await ask(question, hooks.signal)]);
      if (given.some(([, one]) => one === null)) throw new DOMException("", "AbortError");
      more = { ...(inputRequests && { inputResponses: Object.fromEntries(given) }), ...(requestState !== undefined && { requestState }) };
    }
    throw refused(`It asks again and again: ${MOST.rounds} rounds`);
  }
}

// Ask the reader of the page what a server asks; null where no answer is given.
function ask({ method, params = {} }, signal) {
  return new Promise((resolve) => {
    const answer = (result) => (questions.set((all) => all.filter((one) => one !== question)), resolve(result));
    const question = { id: ++serial, method, params, answer };
    signal?.addEventListener("abort", () => answer(null));
    questions.get().length < MOST.questions ? questions.set((all) => [...all, question]) : resolve(null);
  });
}

// A header's value: itself, or in base64 where a header cannot hold it (2026-07-28, basic/transports).
const headerValue = (text) =>
  /^[!-~]([ -~\t]*[!-~])?$/.test(text) && !/^=\?base64\?.*\?=$/.test(text) ? text : `=?base64?${btoa(String.fromCharCode(...new TextEncoder().encode(text)))}?=`;

// Arguments that a schema marks are repeated in headers.
function mirror(schema, values, found, deep = 0) {
  for (const [name, part] of Object.entries(own(schema, "properties") ?? {})) {
    const [value, header] = [own(values, name), own(part, "x-mcp-header")];
    if (header && ["string", "number", "boolean"].includes(typeof value)) found[`Mcp-Param-${header}`] = headerValue(String(value));
    if (isObject(value) && deep < MOST.deep) mirror(part, value, found, deep + 1);
  }
}

// -- what there is: the methods of an OpenRPC document, and what an MCP server lists

export const KINDS = { method: ["Methods", "method", "Call"], tool: ["Tools", "tool", "Call"], resource: ["Resources", "resource", "Read"], template: ["Templates", "resource template", "Read"], prompt: ["Prompts", "prompt", "Get"] };
const each = (value, root) => list(value).slice(0, MOST.entries).map((one) => resolve(one, root)).filter(Boolean);
const words = (value) => (typeof value === "string" ? value : "");
const object = (parts, schemaOf, more = false) => ({ type: "object", properties: Object.fromEntries(parts.map((one) => [words(one.name), schemaOf(one)])), required: parts.filter((one) => one.required).map((one) => one.name), additionalProperties: more });

function entry(kind, one, more) {
  const found = { kind, name: words(one.name), title: words(one.title), text: words(one.description), tags: [], errors: [], examples: [], listed: one, ...more };
  found.hay = [found.name, found.title, found.text.slice(0, 2000), ...found.tags].join("\n").toLowerCase();
  return found;
}

export const methodsOf = (root) =>
  each(own(root, "methods"), root).map((one) => {
    const params = each(one.params, root);
    const [members, items] = ["members", "items"].map((kind) => params.find((part) => part["x-variadic"] === kind));
    const schemaOf = ({ description, schema }) => ({ ...(description && { description }), ...schema });
    const typeOf = (part) => (part === items ? { type: "array", items: schemaOf(part) } : schemaOf(part));
    const examples = each(one.examples, root).map(({ name, params: given, result }) => ({ name, values: Object.fromEntries(each(given, root).map((part, n) => [part.name ?? params[n]?.name, part.value])), result: own(result, "value") }));
    return entry("method", one, {
      ...{ title: words(one.summary), deprecated: one.deprecated, root, params, items, examples, structure: one.paramStructure, listed: undefined },
      tags: each(one.tags, root).map((tag) => words(tag.name)),
      schema: object(params.filter((part) => part !== members), typeOf, members?.schema),
      result: resolve(own(one, "result") ?? null, root)?.schema,
      errors: each(one.errors, root),
    });
  });

// A method that no document describes: its params are JSON.
export const unknown = (name) => entry("method", { name }, { raw: true, schema: {}, listed: undefined });

const HINTS = { readOnlyHint: ["reads only", "may change things"], destructiveHint: ["may destroy", "destroys nothing"], idempotentHint: ["twice is once"], openWorldHint: ["reaches out", "stays within the server"] };
const string = ({ description }) => ({ type: "string", description });
const resource = (kind, name) => (one) => entry(kind, { ...one, name: one[name] }, { title: words(one.title ?? one.name), tags: [one.mimeType].filter(words), method: "resources/read", listed: one, schema: object(kind === "template" ? variables(words(one[name])) : [], string) });

export const entriesOf = ({ tools, resources, resourceTemplates, prompts }) => [
  ...each(tools).map((one) => {
    const tags = Object.entries(HINTS).map(([name, said]) => said[[true, false].indexOf(own(one.annotations, name))]);
    return entry("tool", one, { title: words(one.title ?? own(one.annotations, "title")), tags: tags.filter(Boolean), method: "tools/call", destroys: own(one.annotations, "destructiveHint") === true, schema: isObject(one.inputSchema) ? one.inputSchema : {}, root: one.inputSchema, result: one.outputSchema });
  }),
  ...each(resources).map(resource("resource", "uri")),
  ...each(resourceTemplates).map(resource("template", "uriTemplate")),
  ...each(prompts).map((one) => entry("prompt", one, { method: "prompts/get", schema: object(each(one.arguments), string) })),
];

// The params of a call, from the values of its form; undefined for none.
export function paramsOf(one, values) {
  if (one.raw) return values;
  if (one.kind === "resource") return { uri: one.name };
  if (one.kind === "template") return { uri: expand(one.name, values) };
  if (one.kind !== "method") return { name: one.name, arguments: values };
  if (Object.keys(values).length === 0) return undefined;
  const items = one.items && own(values, one.items.name);
  if (one.structure !== "by-position" && !items) return values;
  const found = one.params.filter((part) => part !== one.items).map((part) => own(values, part.name));
  while (found.length && found.at(-1) === undefined) found.pop();
  return [...found, ...(items ?? [])];
}

// URI templates (RFC 6570): how an expression begins, and what is between its parts.
const EXPRESSION = /\{([+#./;?&]?)([^{}]+)\}/g;
const AROUND = { "": ",", "+": ",", "#": "#,", "?": "?&" };
const bare = (name) => name.replace(/\*$|:\d+$/, "");
const variables = (template) => [...new Set([...template.matchAll(EXPRESSION)].flatMap(([, , names]) => names.split(",").map(bare)))].slice(0, 100).map((name) => ({ name }));

const expand = (template, values) =>
  template.replace(EXPRESSION, (_, operator, names) => {
    const parts = names.split(",").map(bare).filter((name) => own(values, name)).map((name) => {
      const value = /[+#]/.test(operator) ? encodeURI(values[name]) : encodeURIComponent(values[name]);
      return /[;?&]/.test(operator) ? `${name}=${value}` : value;
    });
    const around = AROUND[operator] ?? operator + operator;
    return parts.length ? around.slice(0, -1) + parts.join(around.at(-1)) : "";
  });

// The entries that have every word, those with the first word in their name first.
export function search(entries, query) {
  const all = query.toLowerCase().split(/\s+/).filter(Boolean);
  const by = ({ name }) => 2 * !name.toLowerCase().includes(all[0]) + !name.toLowerCase().startsWith(all[0]);
  return all.length ? entries.filter((one) => all.every((word) => one.hay.includes(word))).sort((a, b) => by(a) - by(b)) : entries;
}

// -- elsewhere

const text = JSON.stringify;
const quote = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);
const PYTHON = { true: "True", false: "False", null: "None" };
const python = (value) => text(value ?? null).replace(/"(?:[^"\\]|\\.)*"|[a-z]+/g, (one) => PYTHON[one] ?? one);
const COMMANDS = { method: "call", tool: "tool", prompt: "prompt", resource: "read", template: "read" };

// A value as a word of the command, which takes what looks like JSON for JSON where it knows no schema.
const LIKE_JSON = /^\s*([[{"\d-]|(true|false|null)\s*$)/;
const word = (value, guessed) => (typeof value === "string" && !(guessed && LIKE_JSON.test(value)) ? value : text(value));

// Every form of a call. `body`: what is sent; `headers`: with which fields beside the token.
export function copies(service, { kind, name }, body, headers) {
  const url = place.urlOf(service.path);
  const [mcp, secret] = [service.kind === "mcp", token.get() !== ""];
  const { params } = body;
  const values = mcp ? params.arguments : params;
  const given = Array.isArray(values) ? values.map((one) => word(one, true)) : Object.entries(values ?? {}).map(([one, value]) => `${one}=${word(value, !mcp)}`);
  const uri = mcp ? params.uri : undefined;
  const call = !mcp ? `peer.call(${text(name)}${params === undefined ? "" : `, ${python(params)}`})` : uri !== undefined ? `client.read_resource(${text(uri)})` : `client.${kind === "tool" ? "call_tool" : "get_prompt"}(${text(name)}, ${python(values)})`;
  const open = `${mcp ? "Client" : "connect"}(${text(url)}${secret ? ', auth=os.environ["TOKEN"]' : ""}) as ${mcp ? "client" : "peer"}`;
  const os = secret ? "import os\n" : "";
  const bearer = secret ? `\nheaders["Authorization"] = "Bearer " + os.environ["TOKEN"]` : "";
  const fields = Object.entries(headers).map(([field, value]) => `-H ${quote(`${field}: ${value}`)}`);
  return [
    ["curl", [`curl ${quote(url)}`, ...fields, ...(secret ? ['-H "Authorization: Bearer $TOKEN"'] : []), `--data-raw ${quote(text(body))}`].join(" \\\n  ")],
    ["Python", `import asyncio\n${os}\nfrom dragoman${mcp ? ".mcp import Client" : " import connect"}\n\n\nasync def main() -> None:\n    async with ${open}:\n        print(await ${call})\n\n\nasyncio.run(main())\n`],
    ["urllib", `import json\n${os}import urllib.request\n\nmessage = ${python(body)}\nheaders = ${python(headers)}${bearer}\nrequest = urllib.request.Request(${text(url)}, json.dumps(message).encode(), headers)\nprint(urllib.request.urlopen(request).read().decode())\n`],
    ["dragoman", ["dragoman", COMMANDS[kind], url, ...(uri === undefined ? [name, ...given] : [uri])].map(quote).join(" ") + (secret ? ' --bearer "$TOKEN"' : "")],
    ["JSON-RPC", pretty(body)],
    ...(mcp ? [["mcp.json", pretty({ mcpServers: { [service.name]: { type: "http", url, ...(secret && { headers: { Authorization: "Bearer ${TOKEN}" } }) } } })]] : []),
  ];
}
