"""The table of signatures: what each shows in its schema, takes and refuses, here, in FastMCP and in FastAPI.

`signatures.jsonl` is the table, a line a signature, and `test_signatures` holds this library to it without any peer.

    python -m tests.rpc.binding.signatures                    write the column "here" anew
    python -m tests.rpc.binding.signatures PEERS/bin/python   the peers' columns, too

PEERS is a virtual environment with `pip install fastmcp==4.1.2 fastapi httpx attrs`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from dragoman.jsonrpc.errors import InvalidParams, LocalError
from dragoman.rpc.binding.binding import bind
from tests.rpc.binding import signature_types

TABLE = Path(__file__).with_name("signatures.jsonl")
PEERS = Path(__file__).with_name("signature_peers.py")

PLAIN = """int|float|str|bool|None|Any|bytes|dt|date|time|timedelta|UUID|Decimal|Path|pathlib.PurePosixPath
ipaddress.IPv4Address|ipaddress.IPv6Address|ipaddress.IPv4Network|Color|Level|Shade|Literal["a", "b"]|Literal[1, "a"]
list|dict|list[int]|list[str]|list[Any]|set[int]|frozenset[str]|tuple[int, str]|tuple[int, ...]|dict[str, int]
dict[int, str]|Sequence[int]|Iterable[int]|Mapping[str, int]|list[list[int]]|dict[str, list[int]]|Point|Circle|Bounded
Validated|Files|Chain|Part|Options|Loose|Pair|Model|Aliased|Checked|Ordered|Closed|Outer|Tree|Generic1[int]|Numbers
Cat|Strange|UserId|Positive|Maybe[int]|list[Point]|list[Model]|list[Options]|list[Color]|list[Path]|dict[str, Model]
dict[str, Point]|tuple[Model, int]|list[Positive]|list[date]|list[AnyUrl]|AnyUrl|HttpUrl|SecretStr|UUID4|Json
PositiveInt|NegativeInt|PositiveFloat|StrictInt|StrictStr|StrictBool|StrictFloat|pydantic.FilePath|pydantic.PastDate
pydantic.AwareDatetime|pydantic.NaiveDatetime|pydantic.ByteSize|pydantic.Base64Bytes|pydantic.FiniteFloat
pydantic.IPvAnyAddress|pydantic.Json[list[int]]|list[StrictInt]|Bits"""

UNIONS = """int / None|str / None|Point / None|Model / None|Path / None|AnyUrl / None|date / None|list[int] / None
int / str|int / float|bool / str|int / bool / str|float / str|date / str|str / date|dt / date|dt / str|UUID / str
UUID / int|Decimal / str|Path / str|Path / int|list[int] / list[str]|list[str] / str|list[int] / int|set[int] / list[str]
dict[str, int] / dict[str, str]|dict[str, int] / list[int]|A / B|B / A|A / None / B|Cat / Dog|Model / int|Model / Point
Point / Circle|Circle / Point|Point / Options|Options / list[int]|Point / int|Point / str|Part / Circle|Pair / list[int]
AnyUrl / str|AnyUrl / int|Color / str|Color / int|Color / Level|Literal["a"] / int|Literal["red"] / Color
list[A / B]|list[Point / Circle]|list[date / str]|dict[str, int / str]|dict[str, A / B]|tuple[date / str, int]
list[Model] / Model|list[Model] / None|A / str|A / list[A]|A / dict[str, str]|date / int|time / str|bytes / int
timedelta / int|Strange / int|SecretStr / None|Checked / str"""

ANNOTATED = """int, Field(ge=1)|int, Field(ge=1, le=9)|int, Field(gt=0, lt=10)|int, Field(multiple_of=3)|float, Field(ge=0.5)
str, Field(min_length=2)|str, Field(min_length=2, max_length=3)|str, Field(pattern="^a")|list[int], Field(min_length=1)
list[int], Field(max_length=1)|dict[str, int], Field(min_length=1)|int, Field(description="how many")
int, Field(title="Count")|int, Field(examples=[3, 4])|int, Field(json_schema_extra={"unit": "cm"})|int, Field(deprecated=True)
int, Field(strict=True)|int, Field(strict=False)|int, Field(default=5)|int, Field(default=5, ge=1)
list[int], Field(default_factory=list)|int, Field(alias="other")|int, Field(validation_alias="other")|Decimal, Field(ge=1)
Decimal, Field(max_digits=3)|date, Field(ge=date(2024, 1, 1))|timedelta, Field(gt=timedelta(0))|float, Field(allow_inf_nan=False)
str, Field(coerce_numbers_to_str=True)|int / None, Field(ge=1)|int / None, Field(description="maybe")|int / str, Field(ge=1)
date / str, Field(description="when")|list[Annotated[int, Field(ge=1)]], Field(min_length=1)|Path, Field(description="where")
AnyUrl, Field(description="where")|Model, Field(description="which")|Point, Field(description="which")
Cat / Dog, Field(discriminator="kind")|list[Annotated[Cat / Dog, Field(discriminator="kind")]], Field(description="pets")
Cat / Dog, Discriminator("kind")|int, Gt(0)|int, Ge(1), Lt(10)|int, Interval(ge=1, le=5)|float, Le(1)|int, MultipleOf(3)
str, MinLen(2)|str, Len(2, 3)|list[int], MaxLen(1)|str, Predicate(str.islower)|str, annotated_types.LowerCase
int, Doc("how many")|str, StringConstraints(strip_whitespace=True)|str, StringConstraints(to_upper=True, min_length=2)
str, StringConstraints(pattern="^a")|int, AfterValidator(even)|list[int], AfterValidator(sorted)|str, AfterValidator(str.upper)
list[str], BeforeValidator(split)|int, BeforeValidator(int)|int, PlainValidator(int)|int, WrapValidator(lambda v, h: h(v) + 1)
int, AfterValidator(even), Field(ge=2, description="even")|int / None, AfterValidator(lambda v: v)|Point, AfterValidator(lambda p: p)
int, pydantic.Strict()|int, pydantic.Strict(False)|int, pydantic.WithJsonSchema({"type": "integer", "title": "W"})
pydantic.PositiveInt, Field(description="n")|bytes, pydantic.EncodedBytes(encoder=pydantic.Base64Encoder)|UUID, pydantic.types.UuidVersion(4)
Options, Field(description="o")|Color, Field(description="c")|Literal["a", "b"], Field(description="l")|bool, Field(description="b")
date, Field(description="d", examples=["2024-01-02"])|dt, Field(description="d")|set[int], Field(min_length=1)
tuple[int, str], Field(description="t")|dict[str, Annotated[int, Field(ge=1)]], Field(description="m")|Any, Field(description="a")"""

CALLS = """conint(ge=1)|conint(gt=0, le=9)|constr(min_length=2)|constr(pattern="^a")|constr(strip_whitespace=True)
constr(to_lower=True, max_length=3)|conlist(int, min_length=1)|pydantic.confloat(ge=0)|pydantic.condecimal(max_digits=3)
pydantic.conset(int, max_length=2)|pydantic.condate(ge=date(2024, 1, 1))|pydantic.conbytes(max_length=3)"""

DEFAULTS = """int = 5|float = 1.5|str = "x"|bool = True|int / None = None|str / None = None|list[int] = []|dict[str, int] = {}
date = date(2024, 1, 2)|Path = Path("tmp")|Color = Color.RED|Literal["a", "b"] = "a"|Point = Point(1)|Model = Model(x=1)
date / str = "now"|list[int] / list[str] = []|A / B / None = None|AnyUrl / None = None|UUID / None = None|Decimal = Decimal(1)
int = Field(default=5)|int = Field(5, ge=1)|int = Field(default=5, ge=1, le=9, description="how many")|int = Field(...)
int = Field(ge=1)|int = Field(description="how many")|str = Field("x", min_length=1, pattern="^x")|int / None = Field(None, ge=1)
int / None = Field(default=None, description="maybe")|list[int] = Field(default_factory=list)|list[str] = Field([], max_length=2)
dict[str, int] = Field(default_factory=dict)|int = Field(alias="other")|int = Field(5, alias="other")
int = Field(validation_alias="other")|int = Field(1, title="T", examples=[1, 2])|int = Field(1, json_schema_extra={"unit": "cm"})
int = Field(1, deprecated=True)|Model = Field(description="which")|Model / None = Field(None)|Point = Field(description="which")
Cat / Dog = Field(discriminator="kind")|A / B = Field(description="one")|date / str = Field("now", description="when")
Path = Field(Path("tmp"), description="where")|AnyUrl = Field(description="where")|float = Field(0.5, ge=0, le=1)
Annotated[int, Field(ge=1)] = 5|Annotated[int, Field(description="n")] = Field(5, ge=1)|Annotated[int, AfterValidator(even)] = 2
Annotated[str, StringConstraints(strip_whitespace=True)] = "a"|Literal["a", "b"] = Field("a", description="which")
bool = Field(False, description="really")|Color = Field(Color.RED, description="hue")|int = Field(5, multiple_of=5)"""

POOL: list[Any] = [None, True, 0, 1, 4, -1, 1.0, 1.5, "", "a", "1", "abc", " a ", "red", "2024-01-02"]
POOL += [
    "2024-01-02T03:04:05Z",
    "03:04:05",
    "PT1S",
    "12345678-1234-4678-9234-567812345678",
    "/no/such/x",
    "127.0.0.1",
    "::1",
]
POOL += [
    "http://a.example/",
    "YWI=",
    "[1]",
    [],
    [1],
    ["a"],
    [1, "a"],
    [2, 1],
    ["2024-01-02", 1],
    [{"x": 1}],
    [{"a": 1}],
]
POOL += [[{"kind": "cat"}], {}, {"x": 1}, {"x": "1"}, {"x": 2, "y": 3}, {"x": -1}, {"a": 1}, {"b": 1}, {"radius": 1}]
POOL += [{"size": 1}, {"kind": "cat"}, {"kind": "dog", "bones": 1}, {"kind": "cow"}, {"low": 1, "high": 2}]
POOL += [{"low": 2, "high": 1}, {"someName": 1}, {"inner": {"x": 1}}, {"content": 1}, {"n": 2}, {"path": "/tmp"}]
POOL += [{"x": 1, "children": [{"x": 2}]}, {"x": 1, "next": {"x": 2}}, {"x": 1, "z": 1}, {"a": {"x": 1}}, {"1": "a"}]
"""Values that every signature is given, beside nothing at all."""


def _split(text: str) -> list[str]:
    """The entries of a list; a union is written with ` / `, since `|` separates entries."""
    return [entry.strip().replace(" / ", " | ") for line in text.splitlines() for entry in line.split("|")]


def signatures() -> list[str]:
    """Every signature: one parameter, as it is written between the parentheses of a function."""
    plain = [*_split(PLAIN), *_split(UNIONS), *_split(CALLS)]
    found = [f"it: {one}" for one in plain]
    found += [f"it: Annotated[{one}]" for one in _split(ANNOTATED)]
    return found + [f"it: {one}" for one in _split(DEFAULTS)]


class Context:
    """Stands for the context type."""


def function(signature: str, taken: list[str]) -> Any:
    """A function with this signature that keeps what it receives; a path as POSIX would show it."""
    names = dict(vars(signature_types)) | {"_taken": taken}
    exec(f"def tried({signature}):\n    _taken.append(repr(it).replace('WindowsPath(', 'PosixPath('))", names)
    return names["tried"]


def here(signature: str) -> dict[str, Any]:
    """What this library makes of a signature."""
    taken: list[str] = []
    try:
        binding = bind(function(signature, taken), context_type=Context)
    except LocalError as error:
        return {"refused": str(error)}
    (parameter,) = binding.parameters
    verdicts: list[str | None] = []
    for value in [UNSET, *POOL]:
        taken.clear()
        params = {} if value is UNSET else {parameter.name: value}
        try:
            binding.function(*binding.arguments(Raw(json.dumps(params).encode())))
        except InvalidParams:
            verdicts.append(None)
        else:
            verdicts.append(taken[0])
    schema = binding.params_schema()
    return {"name": parameter.name, "schema": schema, "verdicts": verdicts}


def peers(python: str, all_of_them: list[str]) -> dict[str, dict[str, Any]]:
    """What the peers make of signatures, run by a Python that has them."""
    asked = json.dumps({"signatures": all_of_them, "pool": POOL})
    done = subprocess.run([python, str(PEERS)], input=asked, capture_output=True, text=True, check=True)
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


def table() -> list[dict[str, Any]]:
    """The table as it is kept."""
    return [json.loads(line) for line in TABLE.read_text(encoding="utf-8").splitlines()]


def main(python: str | None) -> None:
    """Write the table."""
    every = signatures()
    if python is not None:
        told = peers(python, every)
    else:
        told = {row["signature"]: {key: row[key] for key in ("fastmcp", "fastapi")} for row in table()}
    rows = [{"signature": one, "here": here(one)} | told[one] for one in every]
    TABLE.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else None)
