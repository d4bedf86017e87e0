// The official requester of tasks on the official SDK's client: calls the conformance server's tools in one generation,
// and prints what came of it as JSON. Arguments: the URL, the revision.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const need = createRequire(`${process.env.NODE_PATH}/x.js`);
const load = async (name) => import(pathToFileURL(need.resolve(name)));
const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client");
const root = need.resolve("@modelcontextprotocol/client").split("@modelcontextprotocol")[0];
const { createTaskSessionFromClient, createApplicationInputHandler } = await import(
  pathToFileURL(`${root}@modelcontextprotocol/ext-tasks/dist/client/index.js`)
);

const [url, revision] = process.argv.slice(2);
const modern = revision === "2026-07-28";
const clientInfo = { name: "ext-tasks", version: "1.0.0" };
const extensions = { "io.modelcontextprotocol/tasks": {} };
const clientCapabilities = { elicitation: { form: {} }, extensions };
const OPTIONS = { task: { preference: "prefer" } };
const FORM = { confirm: true, name: "Ada" };

const client = new Client(clientInfo, {
  capabilities: clientCapabilities,
  versionNegotiation: { mode: modern ? { pin: revision } : "legacy" },
});
await client.connect(new StreamableHTTPClientTransport(new URL(url)));

// what the SDK's own decoding refuses (results of the type "task") goes beside it
async function rawDispatch(request, options) {
  const params = request.params ?? {};
  const headers = {
    "content-type": "application/json",
    accept: "application/json, text/event-stream",
    "mcp-protocol-version": revision,
    "mcp-method": request.method,
    ...(params.taskId || params.name ? { "mcp-name": params.taskId ?? params.name } : {}),
  };
  const body = JSON.stringify({ jsonrpc: "2.0", id: 1, ...request });
  const answer = await fetch(url, { method: "POST", headers, body, signal: options?.signal });
  const text = await answer.text();
  const last = text.startsWith("{") ? text : text.split("\n").filter((line) => line.startsWith("data: {")).at(-1).slice(6);
  const found = JSON.parse(last);
  return found.error ? { kind: "error", error: found } : { kind: "result", result: found.result };
}

const listed = new Map((await client.listTools()).tools.map((one) => [one.name, one]));
const asked = [];
const session = createTaskSessionFromClient(client, {
  endpointId: "lab",
  tools: {
    currentTool: (name) => {
      const one = listed.get(name);
      return one && { name, inputSchema: one.inputSchema, taskSupport: one.execution?.taskSupport };
    },
  },
  onInputRequest: createApplicationInputHandler({
    elicitation: (request) => {
      asked.push(request.params.message);
      return { action: "accept", content: Object.fromEntries(
        Object.keys(request.params.requestedSchema.properties).map((name) => [name, FORM[name]]),
      ) };
    },
    sampling: () => { throw new Error("not asked for"); },
    roots: () => ({ roots: [] }),
  }),
  ...(modern ? { rawDispatch, v2RequestFraming: { protocolVersion: revision, clientInfo, clientCapabilities } } : {}),
});

const done = {};
async function call(name, args) {
  const execution = await session.callTool(name, args, OPTIONS);
  const { outcome, lastTask } = await execution.settle();
  done[name] = {
    status: outcome.status,
    text: outcome.result?.content?.[0]?.text,
    failed: outcome.result?.isError ?? false,
    error: outcome.error?.message,
    code: outcome.error?.code,
    task: lastTask !== undefined,
  };
}

await call("greet", { name: "Ada" });
await call("slow_compute", { seconds: 0.3, label: "peer" });
await call("failing_job", {});
await call("protocol_error_job", {});
await call("confirm_delete", { filename: "a.txt" });
await call("multi_input", {});

const running = await session.callTool("slow_compute", { seconds: 60, label: "cancelled" }, OPTIONS);
await running.cancel();
done.cancelled = { status: (await running.settle()).outcome.status };
if (!modern) done.listed = (await session.listTasks()).tasks.length;
console.log(JSON.stringify({ capabilities: session.capabilities, asked, ...done }));
await session.close();
await client.close();
