# [testing]
from dragoman.auth.testing import LocalIssuer

with LocalIssuer(resources=["https://notes.example/mcp"]) as issuer:
    good = issuer.token("alice", scopes="notes:read")
    print(issuer.claims(good)["aud"])  # https://notes.example/mcp
    print(issuer.claims(good)["scope"])  # notes:read

    stale = issuer.expired("alice")
    other = issuer.token("alice", resource="https://other.example")
    bound = issuer.token("alice", claims={"cnf": {"jkt": "the thumbprint of a key"}})

    issuer.rotate_keys()
    print(issuer.url.partition("127.0.0.1")[0])  # http://
# [/testing]
