from dragoman.auth import Bearer, Exchange, Introspection, Issuer, MutualTls, Static
from dragoman.auth.presets import auth0, cognito, entra, github, google, keycloak, okta, workos

here = "https://mcp.example/mcp"
verifiers = []

# [plain]
auth = Bearer("https://as.example", resource="https://mcp.example/mcp")
# [/plain]
verifiers.append(auth)

# [several]
auth = Bearer(
    ["https://as.example", keycloak("https://sso.example", "main")],
    resource="https://mcp.example/mcp",
    implies={"notes:admin": ["notes:write"], "notes:write": ["notes:read"]},
)
# [/several]
verifiers.append(auth)

# [own]
home_made = Issuer(
    issuer="https://as.example",
    jwks_uri="https://as.example/keys",  # its metadata do not say it
    types=frozenset({"at+jwt", "jwt"}),  # it writes typ JWT
    roles=(("realm", "roles"),),  # {"realm": {"roles": [...]}}
)
auth = Bearer(home_made, resource="https://mcp.example/mcp")
# [/own]
verifiers.append(auth)

pem = """-----BEGIN PUBLIC KEY-----
MCowBQYDK2VwAyEAvKIVTbIpwIwyM7LBGJBJQIXbQd/MMtmF1a6YApA1+oE=
-----END PUBLIC KEY-----
"""
secret_of_both = "at least 32 bytes, from a file or the environment"

# [key]
auth = Bearer("https://as.example", public_key=pem, resource="https://mcp.example/mcp")
# [/key]
verifiers.append(auth)

# [secret]
scripts = Issuer(
    issuer="scripts",  # any text: nothing is fetched
    types=frozenset({"jwt"}),  # what PyJWT writes
    evidence=("sub",),  # they have neither scope nor client_id
)
auth = Bearer(scripts, secret=secret_of_both, algorithm="HS256", resource="https://mcp.example/mcp")
# [/secret]
assert auth.issuers == ()

# [dpop]
auth = Bearer("https://as.example", resource="https://mcp.example/mcp", dpop="accepted", dpop_nonces=True)
# [/dpop]
verifiers.append(auth)

# [introspection]
auth = Introspection(
    "https://as.example/introspect",
    issuer="https://as.example",
    resource="https://mcp.example/mcp",
    client_id="notes-server",
    secret="from a file or the environment",
)
# [/introspection]
verifiers.append(auth)

# [static]
auth = Static({"kN3xV0q2f9Wb7cLr": "ada", "Zt8yPq1sE4mJ6hDu": "ci"})
# [/static]
assert auth.known(b"kN3xV0q2f9Wb7cLr").subject == "ada"

# [tls]
auth = MutualTls({"spiffe://example/billing": ["notes:read"]}, name="uri")
# [/tls]
assert auth.certificates

# [entra]
auth = Bearer(
    entra("aaaabbbb-0000-cccc-1111-dddd2222eeee", client_id="00001111-aaaa-2222-bbbb-3333cccc4444"),
    resource="https://mcp.example/mcp",
    exchange=Exchange(client_id="00001111-aaaa-2222-bbbb-3333cccc4444", secret="from a file", method="post"),
)
# [/entra]
verifiers.append(auth)

# [google]
auth = google("1234-abc.apps.googleusercontent.com", resource="https://mcp.example/mcp")
# [/google]
verifiers.append(auth)

# [auth0]
auth = Bearer(auth0("example.eu.auth0.com"), resource="https://mcp.example/mcp")
# [/auth0]
verifiers.append(auth)

# [okta]
auth = Bearer(okta("example.okta.com", audience="api://default"), resource="https://mcp.example/mcp")
# [/okta]
verifiers.append(auth)

# [keycloak]
auth = Bearer(keycloak("https://sso.example", "main", roles_of="notes"), resource="https://mcp.example/mcp")
# [/keycloak]
verifiers.append(auth)

# [cognito]
auth = Bearer(
    cognito("eu-west-1", "eu-west-1_Ab12Cd34", clients=["1example23456789"]),
    resource="https://mcp.example/mcp",
)
# [/cognito]
verifiers.append(auth)

# [workos]
auth = Bearer(workos("example.authkit.app"), resource="https://mcp.example/mcp")
# [/workos]
verifiers.append(auth)

# [github]
auth = github("Iv1.0123456789abcdef", "the client's secret, from a file", resource="https://mcp.example/mcp")
# [/github]
verifiers.append(auth)

assert {each.resource for each in verifiers} == {here}
for each in verifiers:
    print(each.issuers[0])
