// A host on the AI SDK, which calls tools as a model does and requests no progress; see `asked.py`.
import { era, limit, load, target, tell } from "./asked.mjs";

const { createMCPClient } = load("@ai-sdk/mcp");
const { StdioMCPTransport } = load("@ai-sdk/mcp/mcp-stdio");

const client = await createMCPClient({
  name: "aisdk",
  protocolVersionDiscovery: era === "auto",
  transport: target[0].startsWith("http")
    ? { type: "http", url: target[0] }
    : new StdioMCPTransport({ command: target[0], args: target.slice(1), env: process.env }),
});
const tools = await client.tools();
await tell({ listTools: () => undefined, close: () => client.close() }, (name, args) =>
  tools[name].execute(args, { toolCallId: "1", messages: [], abortSignal: AbortSignal.timeout(1000 * limit) }),
);
