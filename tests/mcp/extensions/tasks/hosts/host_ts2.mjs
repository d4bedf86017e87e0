// A host on the TypeScript SDK 2; see `asked.py`.
import { era, load, target, tell } from "./asked.mjs";

const { Client, StreamableHTTPClientTransport } = load("@modelcontextprotocol/client");
const { StdioClientTransport } = load("@modelcontextprotocol/client/stdio");

const client = new Client({ name: "ts2", version: "1.0.0" }, { versionNegotiation: { mode: era } });
await client.connect(
  target[0].startsWith("http")
    ? new StreamableHTTPClientTransport(new URL(target[0]))
    : new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env }),
);
await tell(client, (name, args, options) => client.callTool({ name, arguments: args }, options));
