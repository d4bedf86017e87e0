// The TypeScript SDK 2 as a client; `probe.py` says how it is started.
import { answers, features, heard, load, NOTE, probe, tell } from "./probe.mjs";

const { Client, StreamableHTTPClientTransport } = load("@modelcontextprotocol/client");
const { StdioClientTransport } = load("@modelcontextprotocol/client/stdio");

const [era, ...target] = process.argv.slice(2);
const client = new Client(
  { name: "ts2", version: "1.0.0" },
  { versionNegotiation: { mode: era }, capabilities: { elicitation: {}, sampling: {}, roots: {} } },
);
client.setRequestHandler("elicitation/create", answers.elicit);
client.setRequestHandler("sampling/createMessage", answers.sample);
client.setRequestHandler("roots/list", answers.roots);
client.setNotificationHandler("notifications/message", (told) => heard.log(told.params.data));
client.setNotificationHandler("notifications/resources/updated", (told) => heard.wake(told.params.uri));

const wire = target[0].startsWith("http")
  ? new StreamableHTTPClientTransport(new URL(target[0]))
  : new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env });
await client.connect(wire);
const revision = client.getNegotiatedProtocolVersion();
const modern = revision >= "2026";
const LEVEL = { "io.modelcontextprotocol/logLevel": "info" };
const found = await probe(
  features(client, {
    call: (name, args, { loud, ...options }) =>
      client.callTool({ name, arguments: args, ...(loud && modern ? { _meta: LEVEL } : {}) }, options),
    subscribe: () =>
      modern ? client.listen({ resourceSubscriptions: [NOTE] }) : client.subscribeResource({ uri: NOTE }),
    modern,
  }),
);
await client.close();
tell({ revision, ...found });
