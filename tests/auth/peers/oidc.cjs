// An oidc-provider on a free port of loopback: prints the port.
// Client "job": client_credentials by a secret. Others register themselves; every user is logged in as alice and
// agrees. JWT access tokens for any resource, opaque ones where its URL ends in "opaque".
const http = require("node:http");
const { Provider } = require("oidc-provider");

async function agreed(provider, request, response) {
  const details = await provider.interactionDetails(request, response);
  if (details.prompt.name === "login") {
    return provider.interactionFinished(request, response, { login: { accountId: "alice" } });
  }
  const grant = new provider.Grant({ accountId: details.session.accountId, clientId: details.params.client_id });
  const missing = details.prompt.details;
  if (missing.missingOIDCScope) grant.addOIDCScope(missing.missingOIDCScope.join(" "));
  for (const [resource, scopes] of Object.entries(missing.missingResourceScopes ?? {})) {
    grant.addResourceScope(resource, scopes.join(" "));
  }
  const consent = { grantId: await grant.save() };
  return provider.interactionFinished(request, response, { consent }, { mergeWithLastSubmission: true });
}

const server = http.createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: "job",
        client_secret: "canary-7f3a-of-the-tests",
        grant_types: ["client_credentials"],
        redirect_uris: [],
        response_types: [],
        token_endpoint_auth_method: "client_secret_basic",
      },
    ],
    features: {
      clientCredentials: { enabled: true },
      deviceFlow: { enabled: true },
      dPoP: { enabled: true },
      introspection: { enabled: true, allowedPolicy: () => true },
      registration: { enabled: true },
      devInteractions: { enabled: false },
      resourceIndicators: {
        enabled: true,
        defaultResource: () => "https://notes.example/mcp",
        useGrantedResource: () => true,
        getResourceServerInfo: (_, resource) => ({
          scope: "notes:read notes:write",
          audience: resource,
          accessTokenFormat: resource.endsWith("opaque") ? "opaque" : "jwt",
          accessTokenTTL: 300,
        }),
      },
    },
    interactions: { url: (_, interaction) => `/interaction/${interaction.uid}` },
    findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
    issueRefreshToken: async () => true,
  });
  const answer = provider.callback();
  server.on("request", (request, response) => {
    if (request.url.startsWith("/interaction/")) {
      agreed(provider, request, response).catch((error) => {
        response.statusCode = 500;
        response.end(String(error));
      });
    } else {
      answer(request, response);
    }
  });
  console.log(server.address().port);
});
