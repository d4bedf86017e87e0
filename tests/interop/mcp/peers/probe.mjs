// What the TypeScript clients try, as `probe.py` has it for Python's. PEERS_NODE is the folder that holds node_modules.
import { createRequire } from "node:module";

export const load = createRequire(process.env.PEERS_NODE + "/");
export const NOTE = "note://today";
const COUNT = 3;
const PATIENCE = 20_000;

// The callbacks of a client: what it answers when the server asks, and what it was told.
export const answers = {
  elicit: async () => ({ action: "accept", content: { name: "Ann" } }),
  sample: async () => ({ role: "assistant", model: "none", content: { type: "text", text: "42" } }),
  roots: async () => ({ roots: [{ uri: "file:///work" }] }),
};
export const heard = { logs: [], updated: null, wake: () => {} };
heard.updated = new Promise((resolve) => (heard.wake = resolve));
heard.log = (data) => heard.logs.push(data && data.msg !== undefined ? data.msg : data);

// `client` and what differs between the two SDKs: `call(name, args, options)`, `subscribe()`, `modern`.
export function features(client, { call, subscribe, modern }) {
  const tool = (name, args, options = {}) => call(name, args, options);
  const text = async (name, args = {}, options = {}) => {
    const result = await tool(name, args, options);
    if (result.isError) throw new Error(JSON.stringify(result.content));
    return result.content[0].text;
  };
  return {
    list: async () => (await client.listTools()).tools.map((one) => one.name).sort(),
    call: async () => {
      const { structuredContent } = await tool("add", { a: 2, b: 3 });
      return structuredContent.result ?? structuredContent;
    },
    error: async () => {
      const result = await tool("fail", {});
      const said = result.content[0].text;
      return result.isError && said.includes("out of stock") ? "out of stock" : { isError: result.isError, said };
    },
    progress: async () => {
      const seen = [];
      await tool("steps", { count: COUNT }, { onprogress: (step) => seen.push([step.progress, step.total]) });
      return seen;
    },
    log: async () => {
      if (!modern) await client.setLoggingLevel("info");
      heard.logs.length = 0;
      await text("steps", { count: COUNT }, { loud: true });
      return [...heard.logs];
    },
    resource: async () => (await client.readResource({ uri: NOTE })).contents[0].text,
    prompt: async () => (await client.getPrompt({ name: "greet", arguments: { who: "Ann" } })).messages[0].content.text,
    complete: async () => {
      const params = { ref: { type: "ref/prompt", name: "greet" }, argument: { name: "who", value: "An" } };
      return (await client.complete(params)).completion.values;
    },
    elicit: () => text("ask_name"),
    sample: () => text("ask_model"),
    roots: () => text("ask_roots"),
    subscribe: async () => {
      await subscribe();
      await text("touch");
      return await heard.updated;
    },
    cancel: async () => {
      const stop = new AbortController();
      const waiting = tool("wait", {}, { signal: stop.signal }).catch(() => "stopped");
      await text("started");
      stop.abort();
      await waiting;
      return Number(await text("stopped"));
    },
  };
}

export async function probe(tried) {
  const found = {};
  for (const [name, feature] of Object.entries(tried)) {
    let clock;
    const late = new Promise((_, fail) => (clock = setTimeout(() => fail(new Error("out of time")), PATIENCE)));
    try {
      found[name] = await Promise.race([feature(), late]);
    } catch (error) {
      found[name] = { failed: `${error.name}: ${error.message}`.slice(0, 300) };
    }
    clearTimeout(clock);
  }
  return found;
}

export function tell(found) {
  process.stdout.write(JSON.stringify(found) + "\n", () => process.exit(0));
}
