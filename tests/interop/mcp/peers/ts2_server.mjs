// The TypeScript SDK 2 as a server, both eras: `node ts2_server.mjs stdio | http PORT`.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";

import { load, NOTE } from "./probe.mjs";

const sdk = load("@modelcontextprotocol/server");
const { serveStdio } = load("@modelcontextprotocol/server/stdio");
const { NodeStreamableHTTPServerTransport, toNodeHandler, toWebRequest } = load("@modelcontextprotocol/node");
const z = load("zod");

// A client may lose progress that comes together with the answer.
const pause = () => new Promise((resolve) => setTimeout(resolve, 20));
const NAMES = ["Ann", "Anton", "Bob"];
const text = (said) => ({ content: [{ type: "text", text: String(said) }] });
let run;
let stops = 0;
const running = new Promise((resolve) => (run = resolve));
let publish = null; // where a change goes in the stateless era over HTTP

const requestedSchema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
const question = { message: "What is your name?", requestedSchema };
const sampled = { messages: [{ role: "user", content: { type: "text", text: "6 x 7?" } }], maxTokens: 10 };

// One question, pushed in the stateful era and returned in the stateless one.
async function ask(era, ctx, key, method, params, request, tell) {
  if (era === "legacy") return text(tell(await ctx.mcpReq.send({ method, params })));
  const answer = ctx.mcpReq.inputResponses?.[key];
  return answer ? text(tell(answer)) : sdk.inputRequired({ inputRequests: { [key]: request() } });
}

function asking(app, era) {
  app.registerTool("ask_name", {}, (ctx) =>
    ask(era, ctx, "name", "elicitation/create", question, () => sdk.inputRequired.elicit(question), (answer) =>
      `Hello, ${answer.content.name}!`));
  app.registerTool("ask_model", {}, (ctx) =>
    ask(era, ctx, "model", "sampling/createMessage", sampled, () => sdk.inputRequired.createMessage(sampled), (answer) =>
      `Model: ${answer.content.text}`));
  app.registerTool("ask_roots", {}, (ctx) =>
    ask(era, ctx, "roots", "roots/list", undefined, () => sdk.inputRequired.listRoots(), (answer) =>
      `Roots: ${answer.roots.map((root) => root.uri).join(", ")}`));
}

function build({ era }) {
  const app = new sdk.McpServer(
    { name: "ts2", version: "1.0.0" },
    { capabilities: { logging: {}, resources: { subscribe: true }, completions: {} } },
  );
  app.registerTool(
    "add",
    {
      inputSchema: z.object({ a: z.number().int(), b: z.number().int() }),
      outputSchema: z.object({ result: z.number().int() }),
    },
    async ({ a, b }) => ({ ...text(a + b), structuredContent: { result: a + b } }),
  );
  app.registerTool("fail", {}, async () => {
    throw new Error("out of stock");
  });
  app.registerTool("steps", { inputSchema: z.object({ count: z.number().int() }) }, async ({ count }, ctx) => {
    const progressToken = ctx.mcpReq._meta?.progressToken;
    for (let n = 1; n <= count; n++) {
      if (progressToken !== undefined) {
        const params = { progressToken, progress: n, total: count };
        await ctx.mcpReq.notify({ method: "notifications/progress", params });
      }
      await ctx.mcpReq.log("info", `step ${n}`);
      await pause();
    }
    return text("done");
  });
  app.registerTool("wait", {}, async (ctx) => {
    run();
    await new Promise((resolve) => ctx.mcpReq.signal.addEventListener("abort", resolve));
    stops += 1;
    return text("stopped");
  });
  app.registerTool("started", {}, async () => running.then(() => text("yes")));
  app.registerTool("stopped", {}, async () => {
    for (let n = 0; n < 100 && !stops; n++) await new Promise((resolve) => setTimeout(resolve, 50));
    return text(stops);
  });
  asking(app, era);
  app.registerTool("touch", {}, async () => {
    if (era === "modern" && publish) publish();
    else await app.server.sendResourceUpdated({ uri: NOTE });
    return text("touched");
  });
  app.registerResource("note", NOTE, {}, async (uri) => ({ contents: [{ uri: uri.href, text: "Buy milk" }] }));
  const who = sdk.completable(z.string(), (value) => NAMES.filter((name) => name.startsWith(value)));
  app.registerPrompt("greet", { argsSchema: z.object({ who }) }, (args) => ({
    messages: [{ role: "user", content: { type: "text", text: `Greet ${args.who}` } }],
  }));
  if (era === "legacy") app.server.setRequestHandler("resources/subscribe", async () => ({}));
  return app;
}

const wires = new Map();
async function stateful(request, response, body) {
  const known = wires.get(request.headers["mcp-session-id"]);
  if (known) return known.handleRequest(request, response, body);
  const wire = new NodeStreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => wires.set(id, wire),
  });
  await build({ era: "legacy" }).connect(wire);
  return wire.handleRequest(request, response, body);
}

const [mode, port] = process.argv.slice(2);
if (mode === "http") {
  const handler = sdk.createMcpHandler(build, { legacy: "reject" });
  const stateless = toNodeHandler(handler);
  publish = () => handler.notify.resourceUpdated(NOTE);
  createServer(async (request, response) => {
    const web = await toWebRequest(request);
    const legacy = await sdk.isLegacyRequest(web);
    const body = request.method === "POST" ? await web.json().catch(() => undefined) : undefined;
    await (legacy ? stateful(request, response, body) : stateless(request, response, body));
  }).listen(Number(port), "127.0.0.1");
} else {
  serveStdio(build);
}
