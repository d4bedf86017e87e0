'use strict';
// The TypeScript SDK 2: `stdio`, or `memory`, as worker.py measures. BENCH_NODE is the folder that holds node_modules.
const { createRequire } = require('module');
const load = createRequire(process.env.BENCH_NODE + '/');
const { McpServer, InMemoryTransport } = load('@modelcontextprotocol/server');
const z = load('zod');

function build() {
  const app = new McpServer({ name: 'bench', version: '1.0.0' });
  app.registerTool('subtract', {
    inputSchema: z.object({ minuend: z.number().int(), subtrahend: z.number().int() }),
    outputSchema: z.object({ result: z.number().int() }),
  }, async ({ minuend, subtrahend }) => ({
    content: [{ type: 'text', text: String(minuend - subtrahend) }],
    structuredContent: { result: minuend - subtrahend },
  }));
  return app;
}

async function memory() {
  const { Client } = load('@modelcontextprotocol/client');
  const [near, far] = InMemoryTransport.createLinkedPair();
  await build().connect(far);
  const client = new Client({ name: 'bench', version: '1.0.0' });
  await client.connect(near);
  const call = () => client.callTool({ name: 'subtract', arguments: { minuend: 42, subtrahend: 23 } });
  for await (const line of require('readline').createInterface({ input: process.stdin })) {
    const order = JSON.parse(line);
    const answer = JSON.stringify(await call());
    const wall = process.hrtime.bigint();
    const cpu = process.cpuUsage();
    for (let n = 0; n < order.calls; n++) await call();
    const spent = process.cpuUsage(cpu);
    const wallSpent = Number(process.hrtime.bigint() - wall) / 1e9;
    console.log(JSON.stringify({ cpu: (spent.user + spent.system) / 1e6, wall: wallSpent, answer: answer.slice(0, 200) }));
  }
}

if (process.argv[2] === 'memory') memory();
else load('@modelcontextprotocol/server/stdio').serveStdio(build);
