// How the page calls: one POST and what comes back, kept as it went; JSON-RPC; MCP in both eras. Every request goes to
// the page's own origin, with the token that its reader gave.
import { store, parse, isObject, own, list, sizeOf } from "./kit.js";

const ROOT = new URL("../../", import.meta.url);
const MOST = { kept: 200, text: 1 << 19, read: 1 << 26, rounds: 32, pages: 200, deep: 16 };
export const token = store("");
export const questions = store([]);
export const history = store([]);

export class Refused extends Error {
  constructor(words, record) {
    super(words);
    this.record = record;
  }
}

export const urlOf = (path) => new URL(path.slice(1).split("/").map(encodeURIComponent).join("/"), ROOT).href;

let serial = 0;

// Send a request and return its record, with the text of the answer. `heard`: gets each message of a stream.
export async function send(path, { method = "POST", headers, body = "", signal, title, heard, quiet }) {
  const sent = { ...headers, ...(token.get() && { Authorization: `Bearer ${token.get()}` }) };
  const record = { id: ++serial, title, at: new Date(), method, url: urlOf(path), sent, body, size: 0, status: 0, got: [], text: "", note: "" };
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
    throw fault.name === "AbortError" ? fault : new Refused(record.note, record);
  } finally {
    record.text = record.text.slice(0, MOST.text);
    record.ms = performance.now() - began;
    history.set((all) => [...all]);
  }
  return record;
}

// The answer in a body. Raises Refused for none, in the words of the server, and of what it demands.
function answerOf(record) {
  let found;
  try {
    found = parse(record.whole);
  } catch {}
  const error = own(found, "error");
  const challenge = record.got.find(([name]) => name === "www-authenticate")?.[1];
  if (found === undefined || record.status === 401 || record.status === 403 || (record.status >= 400 && !("jsonrpc" in found)))
    throw new Refused(["The server answers", record.status, error?.message ?? error ?? "", challenge ? `(WWW-Authenticate: ${challenge})` : ""].join(" "), record);
  return found;
}

export const services = async () =>
  answerOf(await send("/docs/services", { method: "GET", headers: { Accept: "application/json" }, quiet: true })).services;

const outcome = (record, answer) => ({ record, ...(own(answer, "error") ? { error: answer.error } : { result: own(answer, "result") }) });
const message = (method, params, id = ++serial) => ({ jsonrpc: "2.0", ...(id && { id }), method, ...(params !== undefined && { params }) });

export class RpcService {
  constructor(row) {
    Object.assign(this, row);
  }
  requestOf = message;
  headers = () => ({ "Content-Type": "application/json", Accept: "application/json" });

  async post(body, title, signal, quiet) {
    const record = await send(this.path, { headers: this.headers(), body: JSON.stringify(body), title, signal, quiet });
    return { record, answer: record.status < 300 && !record.whole ? undefined : answerOf(record) };
  }
  async call({ name }, params, { signal }) {
    const { record, answer } = await this.post(message(name, params), name, signal);
    return outcome(record, answer);
  }
  notify = ({ name }, params) => this.post(message(name, params, 0), `${name} (notification)`);

  async catalog() {
    const { answer } = await this.post(message("rpc.discover"), "rpc.discover", undefined, true);
    if (answer.error) throw new Refused(`It does not describe itself (${answer.error.message}). Call its methods by name.`);
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
    const record = await send(this.path, { headers: this.headers(body, entry), body: JSON.stringify(body), title: title ?? body.method, signal, quiet, heard });
    if (record.whole) answer = answerOf(record);
    return { record, answer };
  }
  async ask(method, params) {
    const { record, answer } = await this.post(this.requestOf(method, params));
    if (!answer?.result) throw new Refused(`${method}: ${answer?.error?.message ?? "no answer"}`, Object.assign(record, { error: answer?.error }));
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
        if (revision || [401, 403].includes(fault.record?.status)) throw fault;
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
    send(this.path, { method: "GET", headers, title: "the session's stream", signal: this.listening.signal, quiet: true, heard: (one) => this.take(one, {}) }).catch(() => {});
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
    for (const [needs, method, member] of [["tools", "tools/list", "tools"], ["resources", "resources/list", "resources"], ["resources", "resources/templates/list", "resourceTemplates"], ["prompts", "prompts/list", "prompts"]]) {
      if (!own(this.info.capabilities, needs)) continue;
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
      if (!answer) throw new Refused("There came no answer", record);
      const { resultType, inputRequests, requestState } = own(answer, "result") ?? {};
      if (resultType !== "input_required") return outcome(record, answer);
      const given = [];
      for (const [key, question] of Object.entries(inputRequests ?? {})) given.push([key, await ask(question, hooks.signal)]);
      if (given.some(([, one]) => one === null)) throw new DOMException("", "AbortError");
      more = { ...(inputRequests && { inputResponses: Object.fromEntries(given) }), ...(requestState !== undefined && { requestState }) };
    }
    throw new Refused(`It asks again and again: ${MOST.rounds} rounds`);
  }
}

// Ask the reader of the page what a server asks; null where no answer is given.
function ask({ method, params = {} }, signal) {
  return new Promise((resolve) => {
    const answer = (result) => (questions.set((all) => all.filter((one) => one !== question)), resolve(result));
    const question = { id: ++serial, method, params, answer };
    signal?.addEventListener("abort", () => answer(null));
    questions.set((all) => [...all, question]);
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
