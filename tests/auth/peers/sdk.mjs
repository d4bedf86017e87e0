// The official TypeScript SDK 2 as a client that logs in: calls tools at a URL, and prints what they said and how often
// its user was asked, as JSON.
import { createRequire } from "node:module";

const { Client, StreamableHTTPClientTransport, UnauthorizedError } = createRequire(
  `${process.env.PEERS_NODE}/package.json`,
)("@modelcontextprotocol/client");

const CALLBACK = "http://127.0.0.1:1/callback";
const [url, ...tools] = process.argv.slice(2);
const kept = {};
const led = [];

const provider = {
  redirectUrl: CALLBACK,
  clientMetadata: {
    client_name: "sdk",
    redirect_uris: [CALLBACK],
    token_endpoint_auth_method: "none",
    grant_types: ["authorization_code", "refresh_token"],
    response_types: ["code"],
  },
  clientInformation: () => kept.client,
  saveClientInformation: (client) => void (kept.client = client),
  tokens: () => kept.tokens,
  saveTokens: (tokens) => void (kept.tokens = tokens),
  codeVerifier: () => kept.verifier,
  saveCodeVerifier: (verifier) => void (kept.verifier = verifier),
  discoveryState: () => kept.discovery,
  saveDiscoveryState: (state) => void (kept.discovery = state),
  redirectToAuthorization: async (to) => {
    const answer = await fetch(to, { redirect: "manual" });
    led.push(new URL(answer.headers.get("location")).searchParams);
  },
};

async function asked(work) {
  for (let times = 0; ; times++) {
    const wire = new StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
    const client = new Client({ name: "sdk", version: "1.0.0" }, { versionNegotiation: { mode: "auto" } });
    try {
      await client.connect(wire);
      return await work(client);
    } catch (error) {
      if (!(error instanceof UnauthorizedError) || times > 2) throw error;
      await wire.finishAuth(led.at(-1));
    } finally {
      await client.close();
    }
  }
}

const said = [];
for (const tool of tools) {
  said.push(await asked(async (client) => (await client.callTool({ name: tool, arguments: {} })).content[0].text));
}
console.log(
  JSON.stringify({
    said,
    asked: led.length,
    refresh: Boolean(kept.tokens?.refresh_token),
    issuers: led.map((one) => one.getAll("iss")),
  }),
);
