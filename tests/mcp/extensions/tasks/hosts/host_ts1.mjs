// A host on the TypeScript SDK 1; see `asked.py`.
import { load, target, tell } from "./asked.mjs";

const { Client } = load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = load("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = load("@modelcontextprotocol/sdk/client/streamableHttp.js");

const client = new Client({ name: "ts1", version: "1.0.0" });
await client.connect(
  target[0].startsWith("http")
    ? new StreamableHTTPClientTransport(new URL(target[0]))
    : new StdioClientTransport({ command: target[0], args: target.slice(1), env: process.env }),
);
await tell(client, (name, args, options) => client.callTool({ name, arguments: args }, undefined, options));
