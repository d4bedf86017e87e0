# [types]
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal

from msgspec import Meta, Struct

from dragoman import Service

api = Service("library")


class Author(Struct):
    name: Annotated[str, Meta(min_length=1)]
    born: date | None = None


@dataclass
class Shelf:
    room: int
    side: Literal["left", "right"] = "left"


@api.method
def add(title: str, author: Author, shelf: Shelf, copies: Annotated[int, Meta(ge=1)] = 1) -> str:
    return f"{copies} x {title} by {author.name}"


# [/types]
# [faults]
request = b"""{"jsonrpc": "2.0", "id": 1, "method": "add", "params":
    {"title": 5, "author": {"name": "", "born": "soon"}, "shelf": {"room": 1.5, "side": "top"}, "copies": 0}}"""
answer = api.answer(request)
# [/faults]
import msgspec

for fault in msgspec.json.decode(answer)["error"]["data"]["errors"]:
    print(fault)
# {'field': 'title', ...}
