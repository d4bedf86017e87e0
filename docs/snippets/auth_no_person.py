# [absent]
import asyncio

from dragoman import Service, connect, serve
from dragoman.auth import Bearer, Login, LoginNeeded, MemoryStore
from dragoman.auth.testing import LocalIssuer

URL = "http://127.0.0.1:8000"


async def main(issuer: LocalIssuer) -> None:
    async with serve(Service("notes", auth=Bearer(issuer.url, resource=URL)), urls=URL):
        login = Login(interactive=False, store=MemoryStore(), issuer=issuer.url)
        async with connect(URL, auth=login) as peer:
            try:
                await peer.call("count")
            except LoginNeeded as needed:
                print(needed)  # a person has to log in first: dragoman login...


with LocalIssuer() as issuer:
    asyncio.run(main(issuer))
# [/absent]
