// What a service offers, as entries of one form: the methods of an OpenRPC document, and what an MCP server lists; and a
// call of one as text for elsewhere: curl, Python, this project's command, JSON-RPC, an entry of mcp.json.
import { isObject, isRaw, own, pretty, list as all } from "./kit.js";
import { resolve } from "./form.js";
import { urlOf, token } from "./wire.js";

const MOST = 20_000;
export const KINDS = { method: ["Methods", "method", "Call"], tool: ["Tools", "tool", "Call"], resource: ["Resources", "resource", "Read"], template: ["Templates", "resource template", "Read"], prompt: ["Prompts", "prompt", "Get"] };
const list = (value, root) => all(value).slice(0, MOST).map((one) => resolve(one, root)).filter(Boolean);
const text = (value) => (typeof value === "string" ? value : "");
const object = (pairs, required = [], more = false) => ({ type: "object", properties: Object.fromEntries(pairs), required, additionalProperties: more });

function entry(kind, name, more) {
  const found = { kind, name: text(name), title: "", text: "", tags: [], errors: [], examples: [], ...more };
  found.hay = [found.name, found.title, found.text.slice(0, 2000), ...found.tags].join("\n").toLowerCase();
  return found;
}

// -- JSON-RPC

export function methodsOf(root) {
  return list(own(root, "methods"), root).map((one) => {
    const params = list(one.params, root);
    const [variadic, named] = ["members", "items"].map((kind) => params.find((part) => part["x-variadic"] === kind));
    const mine = params.filter((part) => part !== variadic);
    const schemaOf = (part) => {
      const schema = { ...(part.description && { description: part.description }), ...part.schema };
      return part === named ? { type: "array", items: schema } : schema;
    };
    const examples = list(one.examples, root).map((each) => ({ name: text(each.name), result: own(each.result, "value"), values: Object.fromEntries(list(each.params, root).map((part, n) => [part.name ?? params[n]?.name, part.value])) }));
    return entry("method", one.name, {
      ...{ title: text(one.summary), text: text(one.description), deprecated: one.deprecated, root, params, examples, variadic: named, structure: one.paramStructure },
      tags: list(one.tags, root).map((tag) => text(tag.name)),
      schema: object(mine.map((part) => [text(part.name), schemaOf(part)]), mine.filter((part) => part.required && part !== named).map((part) => part.name), variadic?.schema),
      result: resolve(own(one, "result") ?? null, root)?.schema,
      errors: list(one.errors, root),
    });
  });
}

// A method that no document describes: its params are JSON.
export const unknown = (name) => entry("method", name, { raw: true, schema: {}, root: {} });

// -- MCP

const HINTS = { readOnlyHint: ["reads only", "may change things"], destructiveHint: ["may destroy", "destroys nothing"], idempotentHint: ["twice is once"], openWorldHint: ["reaches out", "stays within the server"] };

const resource = (kind, name) => (one) =>
  entry(kind, one[name], {
    ...{ title: text(one.title) || text(one.name), text: text(one.description), tags: [text(one.mimeType)].filter(Boolean), method: "resources/read", listed: one },
    schema: object(kind === "template" ? variables(text(one[name])).map((each) => [each, { type: "string" }]) : []),
  });

export const entriesOf = ({ tools, resources, resourceTemplates, prompts }) => [
  ...list(tools).map((one) => {
    const hints = Object.entries(HINTS).map(([name, words]) => words[[true, false].indexOf(own(one.annotations, name))]);
    const more = { title: text(one.title) || text(own(one.annotations, "title")), text: text(one.description), tags: hints.filter(Boolean), method: "tools/call", listed: one };
    return entry("tool", one.name, { ...more, schema: isObject(one.inputSchema) ? one.inputSchema : {}, root: one.inputSchema, result: one.outputSchema });
  }),
  ...list(resources).map(resource("resource", "uri")),
  ...list(resourceTemplates).map(resource("template", "uriTemplate")),
  ...list(prompts).map((one) => {
    const parts = list(one.arguments);
    const schema = object(parts.map((part) => [text(part.name), { type: "string", description: text(part.description) }]), parts.filter((part) => part.required).map((part) => part.name));
    return entry("prompt", one.name, { title: text(one.title), text: text(one.description), method: "prompts/get", schema, listed: one });
  }),
];

// The params of a call, from the values of its form; undefined for none.
export function paramsOf(one, values) {
  if (one.raw) return values;
  if (one.kind === "resource") return { uri: one.name };
  if (one.kind === "template") return { uri: expand(one.name, values) };
  if (one.kind !== "method") return { name: one.name, arguments: values };
  if (Object.keys(values).length === 0) return undefined;
  const items = one.variadic && own(values, one.variadic.name);
  if (one.structure !== "by-position" && !items) return values;
  const found = one.params.filter((part) => part !== one.variadic).map((part) => own(values, part.name));
  while (found.length && found.at(-1) === undefined) found.pop();
  return [...found, ...(items ?? [])];
}

// -- URI templates (RFC 6570): how an expression begins, what is between its parts

const EXPRESSION = /\{([+#./;?&]?)([^{}]+)\}/g;
const AROUND = { "": ["", ","], "+": ["", ","], "#": ["#", ","], ".": [".", "."], "/": ["/", "/"], ";": [";", ";"], "?": ["?", "&"], "&": ["&", "&"] };
const bare = (name) => name.replace(/\*$|:\d+$/, "");
const variables = (template) => [...new Set([...template.matchAll(EXPRESSION)].flatMap(([, , names]) => names.split(",").map(bare)))].slice(0, 100);

export const expand = (template, values) =>
  template.replace(EXPRESSION, (_, operator, names) => {
    const [first, between] = AROUND[operator];
    const encode = "+#".includes(operator || "-") ? encodeURI : encodeURIComponent;
    const parts = names.split(",").filter((name) => own(values, bare(name))).map((name) => {
      const value = encode(String(values[bare(name)]).slice(0, /:(\d+)$/.exec(name)?.[1]));
      return ";?&".includes(operator || "-") ? `${bare(name)}=${value}` : value;
    });
    return parts.length ? first + parts.join(between) : "";
  });

// The entries that have every word, those with the first word in their name first.
export function search(entries, query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const rank = ({ name }) => 3 * !name.toLowerCase().includes(words[0]) + !name.toLowerCase().startsWith(words[0]);
  return words.length ? entries.filter((one) => words.every((word) => one.hay.includes(word))).sort((a, b) => rank(a) - rank(b)) : entries;
}

// -- elsewhere

const quote = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

// A JSON value as Python writes it.
const WORDS = { true: "True", false: "False", null: "None" };
const python = (value) => JSON.stringify(value ?? null).replace(/"(?:[^"\\]|\\.)*"|[a-z]+/g, (one) => WORDS[one] ?? one);

// A value as a word of the command, which takes what is JSON for JSON where it knows no schema.
function word(value, guessed) {
  try {
    if (typeof value === "string") return (JSON.parse(value), guessed ? JSON.stringify(value) : value);
  } catch {
    return value;
  }
  return JSON.stringify(value);
}

const NEWLINE = " \\\n  ";
const COMMANDS = { method: "call", tool: "tool", prompt: "prompt", resource: "read", template: "read" };

// Every form of a call. `body`: what is sent; `headers`: with which fields beside the token.
export function copies(service, { kind, name }, body, headers) {
  const url = urlOf(service.path);
  const [mcp, secret] = [service.kind === "mcp", token.get() !== ""];
  const { params } = body;
  const values = mcp ? params.arguments : params;
  const words = Array.isArray(values) ? values.map((one) => word(one, true)) : Object.entries(values ?? {}).map(([one, value]) => `${one}=${word(value, !mcp)}`);
  const target = params?.uri !== undefined && mcp ? [params.uri] : [name, ...words];
  const fields = Object.entries(headers).map(([field, value]) => `-H ${quote(`${field}: ${value}`)}`);
  const call = !mcp ? `peer.call(${JSON.stringify(name)}${params === undefined ? "" : `, ${python(params)}`})` : params.uri !== undefined ? `client.read_resource(${JSON.stringify(params.uri)})` : `client.${kind === "tool" ? "call_tool" : "get_prompt"}(${JSON.stringify(name)}, ${python(values)})`;
  const open = `${mcp ? "Client" : "connect"}(${JSON.stringify(url)}${secret ? ', auth=os.environ["TOKEN"]' : ""}) as ${mcp ? "client" : "peer"}`;
  const os = secret ? "import os\n" : "";
  const bearer = secret ? `\nheaders["Authorization"] = "Bearer " + os.environ["TOKEN"]` : "";
  return [
    ["curl", ["curl " + quote(url), ...fields, ...(secret ? ['-H "Authorization: Bearer $TOKEN"'] : []), `--data-raw ${quote(JSON.stringify(body))}`].join(NEWLINE)],
    ["Python", `import asyncio\n${os}\nfrom dragoman${mcp ? ".mcp import Client" : " import connect"}\n\n\nasync def main() -> None:\n    async with ${open}:\n        print(await ${call})\n\n\nasyncio.run(main())\n`],
    ["urllib", `import json\n${os}import urllib.request\n\nmessage = ${python(body)}\nheaders = ${python(headers)}${bearer}\nrequest = urllib.request.Request(${JSON.stringify(url)}, json.dumps(message).encode(), headers)\nprint(urllib.request.urlopen(request).read().decode())\n`],
    ["dragoman", ["dragoman", COMMANDS[kind], url, ...target].map(quote).join(" ") + (secret ? ' --bearer "$TOKEN"' : "")],
    ["JSON-RPC", pretty(body)],
    ...(mcp ? [["mcp.json", pretty({ mcpServers: { [service.name]: { type: "http", url, ...(secret && { headers: { Authorization: "Bearer ${TOKEN}" } }) } } })]] : []),
  ];
}
