# [server]
import asyncio

from calculator import api
from dragoman import serve


async def main() -> None:
    await serve(api, urls="stdio:")  # until end of file


if __name__ == "__main__":
    asyncio.run(main())
# [/server]
