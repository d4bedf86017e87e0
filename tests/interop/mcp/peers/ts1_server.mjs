// The TypeScript SDK 1 as a server: `node ts1_server.mjs stdio | http PORT`.
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";

import { load, NOTE } from "./probe.mjs";

const { McpServer } = load("@modelcontextprotocol/sdk/server/mcp.js");
const { completable } = load("@modelcontextprotocol/sdk/server/completable.js");
const { StdioServerTransport } = load("@modelcontextprotocol/sdk/server/stdio.js");
const { StreamableHTTPServerTransport } = load("@modelcontextprotocol/sdk/server/streamableHttp.js");
const types = load("@modelcontextprotocol/sdk/types.js");
const { z } = load("zod");

// A client may lose progress that comes together with the answer.
const pause = () => new Promise((resolve) => setTimeout(resolve, 20));
const NAMES = ["Ann", "Anton", "Bob"];
const text = (said) => ({ content: [{ type: "text", text: String(said) }] });
let run;
let stops = 0;
const running = new Promise((resolve) => (run = resolve));

function build() {
  const app = new McpServer(
    { name: "ts1", version: "1.0.0" },
    { capabilities: { logging: {}, resources: { subscribe: true }, completions: {} } },
  );
  const ask = (extra, method, params, schema) => extra.sendRequest({ method, params }, schema);
  app.registerTool(
    "add",
    { inputSchema: { a: z.number().int(), b: z.number().int() }, outputSchema: { result: z.number().int() } },
    async ({ a, b }) => ({ ...text(a + b), structuredContent: { result: a + b } }),
  );
  app.registerTool("fail", {}, async () => {
    throw new Error("out of stock");
  });
  app.registerTool("steps", { inputSchema: { count: z.number().int() } }, async ({ count }, extra) => {
    for (let n = 1; n <= count; n++) {
      const progressToken = extra._meta?.progressToken;
      if (progressToken !== undefined) {
        const params = { progressToken, progress: n, total: count };
        await extra.sendNotification({ method: "notifications/progress", params });
      }
      await extra.sendNotification({ method: "notifications/message", params: { level: "info", data: `step ${n}` } });
      await pause();
    }
    return text("done");
  });
  app.registerTool("wait", {}, async (extra) => {
    run();
    await new Promise((resolve) => extra.signal.addEventListener("abort", resolve));
    stops += 1;
    return text("stopped");
  });
  app.registerTool("started", {}, async () => running.then(() => text("yes")));
  app.registerTool("stopped", {}, async () => {
    for (let n = 0; n < 100 && !stops; n++) await new Promise((resolve) => setTimeout(resolve, 50));
    return text(stops);
  });
  app.registerTool("ask_name", {}, async (extra) => {
    const requestedSchema = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
    const params = { message: "What is your name?", requestedSchema };
    const answer = await ask(extra, "elicitation/create", params, types.ElicitResultSchema);
    return text(`Hello, ${answer.content.name}!`);
  });
  app.registerTool("ask_model", {}, async (extra) => {
    const messages = [{ role: "user", content: { type: "text", text: "6 x 7?" } }];
    const params = { messages, maxTokens: 10 };
    const answer = await ask(extra, "sampling/createMessage", params, types.CreateMessageResultSchema);
    return text(`Model: ${answer.content.text}`);
  });
  app.registerTool("ask_roots", {}, async (extra) => {
    const { roots } = await ask(extra, "roots/list", undefined, types.ListRootsResultSchema);
    return text(`Roots: ${roots.map((root) => root.uri).join(", ")}`);
  });
  app.registerTool("touch", {}, async () => {
    await app.server.sendResourceUpdated({ uri: NOTE });
    return text("touched");
  });
  app.registerResource("note", NOTE, {}, async (uri) => ({ contents: [{ uri: uri.href, text: "Buy milk" }] }));
  const who = completable(z.string(), (value) => NAMES.filter((name) => name.startsWith(value)));
  app.registerPrompt("greet", { argsSchema: { who } }, (args) => ({
    messages: [{ role: "user", content: { type: "text", text: `Greet ${args.who}` } }],
  }));
  app.server.setRequestHandler(types.SubscribeRequestSchema, async () => ({}));
  return app;
}

const wires = new Map();
async function http(request, response) {
  const known = wires.get(request.headers["mcp-session-id"]);
  if (known) return known.handleRequest(request, response);
  const wire = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    onsessioninitialized: (id) => wires.set(id, wire),
  });
  await build().connect(wire);
  return wire.handleRequest(request, response);
}

const [mode, port] = process.argv.slice(2);
if (mode === "http") createServer(http).listen(Number(port), "127.0.0.1");
else await build().connect(new StdioServerTransport());
