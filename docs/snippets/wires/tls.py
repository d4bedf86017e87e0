import asyncio
import ssl
from pathlib import Path

import trustme

from calculator import api

authority = trustme.CA()
pair = authority.issue_cert("localhost")
Path("cert.pem").write_bytes(pair.cert_chain_pems[0].bytes())
Path("key.pem").write_bytes(pair.private_key_pem.bytes())
Path("ca.pem").write_bytes(authority.cert_pem.bytes())

URL = "tls://127.0.0.1:9443".replace("127.0.0.1", "localhost")
# [tls]
from dragoman import connect, serve

server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
server.load_cert_chain("cert.pem", "key.pem")
client = ssl.create_default_context(cafile="ca.pem")  # leave tls= out for the system's own authorities


async def main() -> None:
    async with serve(api, urls=URL, tls=server):
        async with connect(URL, tls=client) as peer:
            print(await peer.call("subtract", [42, 23]))  # 19


# [/tls]
asyncio.run(main())
