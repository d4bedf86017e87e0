// The TypeScript SDK 1 as a client; `probe.py` says how it is started. A URL that ends in /sse is taken for HTTP+SSE.
import { answers, features, heard, load, NOTE, probe, tell } from "./probe.mjs";

const { Client } = load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = load("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = load("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { SSEClientTransport } = load("@modelcontextprotocol/sdk/client/sse.js");
const types = load("@modelcontextprotocol/sdk/types.js");

const [, ...target] = process.argv.slice(2);
const client = new Client(
  { name: "ts1", version: "1.0.0" },
  { capabilities: { elicitation: {}, sampling: {}, roots: {} } },
);
client.setRequestHandler(types.ElicitRequestSchema, answers.elicit);
client.setRequestHandler(types.CreateMessageRequestSchema, answers.sample);
client.setRequestHandler(types.ListRootsRequestSchema, answers.roots);
client.setNotificationHandler(types.LoggingMessageNotificationSchema, (told) => heard.log(told.params.data));
client.setNotificationHandler(types.ResourceUpdatedNotificationSchema, (told) => heard.wake(told.params.uri));

function transport() {
  if (target[0].endsWith("/sse")) return new SSEClientTransport(new URL(target[0]));
  if (target[0].startsWith("http")) return new StreamableHTTPClientTransport(new URL(target[0]));
  return new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env });
}

const wire = transport();
let revision = null; // the client keeps what was negotiated to itself, but tells its transport
const told = wire.setProtocolVersion?.bind(wire);
wire.setProtocolVersion = (negotiated) => {
  revision = negotiated;
  told?.(negotiated);
};
await client.connect(wire);
const found = await probe(
  features(client, {
    call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options),
    subscribe: () => client.subscribeResource({ uri: NOTE }),
    modern: false,
  }),
);
await client.close();
tell({ revision, ...found });
