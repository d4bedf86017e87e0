// The AI SDK as the client of events, and as their receiver: `node aisdk.mjs MCP-URL TOKEN`. Each line on stdin is a step:
// "subscribe ARGUMENTS", "refresh", "unsubscribe". Each line on stdout is JSON: an event, or what came of a step.
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const { createMCPClient, experimental_createMCPEventWebhook } = createRequire(process.env.PEERS_NODE + "/")(
  "@ai-sdk/mcp",
);
const [url, token] = process.argv.slice(2);
const tell = (value) => console.log(JSON.stringify(value));

const kept = new Map();
const store = {
  get: async (key) => kept.get(key),
  getById: async (id) => [...kept.values()].find((one) => one.id === id),
  set: async (one) => void kept.set(one.key, one),
  update: async (key, more) => void kept.set(key, { ...kept.get(key), ...more }),
  delete: async (key) => void kept.delete(key),
};
const receive = experimental_createMCPEventWebhook({
  store,
  onEvent: ({ event }) => tell({ event }),
  onTerminated: ({ termination }) => tell({ terminated: termination.error.code }),
  onError: (error) => tell({ error: String(error) }),
});
const receiver = createServer(async (request, response) => {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const at = `http://127.0.0.1:${receiver.address().port}${request.url}`;
  const body = Buffer.concat(chunks);
  const answer = await receive(new Request(at, { method: request.method, headers: request.headers, body }));
  response.writeHead(answer.status, Object.fromEntries(answer.headers)).end(Buffer.from(await answer.arrayBuffer()));
});
await new Promise((done) => receiver.listen(0, "127.0.0.1", done));

const client = await createMCPClient({
  transport: { type: "http", url, headers: { Authorization: `Bearer ${token}` } },
  experimental_events: { store },
});
const events = client.experimental_events;
tell({ listed: (await events.list()).events });
let id;
for await (const line of createInterface({ input: process.stdin })) {
  const [step, words] = line.split(/ (.*)/s);
  try {
    if (step === "subscribe") {
      const delivery = {
        mode: "webhook",
        url: `http://127.0.0.1:${receiver.address().port}/hooks`,
        allowInsecureLocalhost: true,
      };
      const found = await events.subscribe({ name: "order_shipped", arguments: JSON.parse(words), delivery });
      id = found.id;
      tell({ found });
    } else if (step === "refresh") tell({ found: await events.refresh({ id }) });
    else tell({ unsubscribed: (await events.unsubscribe({ id })) ?? null });
  } catch (error) {
    tell({ error: String(error) });
  }
}
await client.close();
receiver.close();
