// What the hosts on the TypeScript SDKs do alike, as `asked.py` has it. PEERS_NODE is the folder of node_modules.
import { createRequire } from "node:module";

export const load = createRequire(process.env.PEERS_NODE + "/");
export const [era, limit, seconds, count, ...target] = process.argv.slice(2);

async function use(call, number) {
  let handles = 0;
  let progress = 0;
  const options = { timeout: 1000 * limit, onprogress: () => (progress += 1) };
  let result = await call("work_0", { number, seconds: Number(seconds) }, options);
  for (;;) {
    if (result.isError) throw new Error(JSON.stringify(result.content));
    const told = /call (\w+) with (\{.*?\})/.exec(result.content[0].text);
    if (told === null) return { structured: result.structuredContent, handles, progress };
    handles += 1;
    result = await call(told[1], JSON.parse(told[2]), options);
  }
}

// `call(name, arguments, options)` returns the result of a tool.
export async function tell(client, call) {
  await client.listTools(); // results are checked against the schemas that are listed
  const found = await Promise.all([...Array(Number(count)).keys()].map((number) => use(call, number)));
  await client.close();
  console.log(JSON.stringify(found));
}
