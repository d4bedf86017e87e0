"""Bad answers as data: what a far end may send in place of a JSON-RPC answer to the call with the id `ID`.

`BODIES` are whole bodies of a POST; `KINDS` are those that differ in kind, for the wires that carry many messages;
`BATCHES` are answers to a batch whose first call is `ID`; `STRAYS` are answers that name no call.
"""

from __future__ import annotations

from msgspec import Struct


class Bad(Struct, frozen=True):
    """`text`: what is sent, with `ID` for the call's id; `says`: what the error says."""

    text: bytes
    says: str

    def to(self, id: int) -> bytes:
        return self.text.replace(b"ID", b"%d" % id)


DEEP = b"[" * 600 + b"]" * 600
BODIES: tuple[Bad, ...] = (
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":NaN}', "Parse error"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":Infinity}', "Parse error"),
    Bad(b'{"jsonrpc":"2.0","result":NaN,"id":ID}', "Parse error"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":1e999}', "the result does not fit"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":1' + b"0" * 400 + b"}", "Parse error"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":1,}', "trailing comma"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":{"a":', "truncated"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":"', "truncated"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":None}', "Parse error"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":True}', "Parse error"),
    Bad(b"{'jsonrpc':'2.0','id':ID,'result':1}", "Parse error"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":01}', "Parse error"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":"\xff"}', "not UTF-8"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":"\\ud800"}', "Parse error"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":"a\nb"}', "Parse error"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":' + DEEP + b"}", "Too large: depth"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":1}{"jsonrpc":"2.0","id":ID,"result":1}', "trailing characters"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":1} // done', "trailing characters"),
    Bad(b'\xef\xbb\xbf{"jsonrpc":"2.0","id":ID,"result":1}', ""),
    Bad(b'{"id":ID,"result":1}', "`jsonrpc` is missing"),
    Bad(b'{"jsonrpc":"1.0","id":ID,"result":1}', '`jsonrpc` must be "2.0"'),
    Bad(b'{"jsonrpc":2.0,"id":ID,"result":1}', '`jsonrpc` must be "2.0"'),
    Bad(b'{"jsonrpc":"2.0","id":ID}', "`method` is missing"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":1,"error":{"code":1,"message":"m"}}', "both `result` and `error`"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"error":null}', "`error` must be an object"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"error":"no"}', "`error` must be an object"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"error":{}}', "`error.code` is missing"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"error":{"code":"E","message":"m"}}', "error"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"error":{"code":1.5,"message":"m"}}', "`error.code` must be an integer"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"error":{"code":1}}', "`error.message` is missing"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"error":{"code":1,"message":7}}', "error"),
    Bad(b'{"jsonrpc":"2.0","id":"ID","result":1}', "does not match"),
    Bad(b'{"jsonrpc":"2.0","id":ID000,"result":1}', "does not match"),
    Bad(b'{"jsonrpc":"2.0","id":[ID],"result":1}', "`id` must be"),
    Bad(b'{"jsonrpc":"2.0","id":true,"result":1}', "`id` must be"),
    Bad(b'{"jsonrpc":"2.0","id":null,"result":1}', "id"),
    Bad(b'{"jsonrpc":"2.0","result":1}', "`id` is missing"),
    Bad(b'{"jsonrpc":"2.0","id":null,"error":{"code":-32603,"message":"broken inside"}}', "broken inside"),
    Bad(b'{"jsonrpc":"2.0","error":{"code":-32603,"message":"broken inside"}}', "broken inside"),
    Bad(b'{"method":5}', "JSON-RPC"),
    Bad(b'{"jsonrpc":"2.0","method":"log","params":[]}', "not a JSON-RPC answer"),
    Bad(b'{"jsonrpc":"2.0","method":"ask","id":ID}', "not a JSON-RPC answer"),
    Bad(b"{}", "JSON-RPC"),
    Bad(b"[]", "JSON-RPC"),
    Bad(b"[1,2]", "JSON-RPC"),
    Bad(b'[{"jsonrpc":"2.0","id":ID,"result":NaN}]', "Parse error"),
    Bad(b"7", "that is not JSON-RPC"),
    Bad(b"null", "that is not JSON-RPC"),
    Bad(b'"fine"', "that is not JSON-RPC"),
    Bad(b"<html>Sign in</html>", "that is not JSON-RPC"),
    Bad(b"", "without a body"),
)

KINDS: tuple[Bad, ...] = (
    # the id can be read, at the beginning or at the end: the call ends at once
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":NaN}', "Parse error"),
    Bad(b'{"jsonrpc":"2.0","result":{"a":NaN},"id":ID}', "Parse error"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":1,}', "trailing comma"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":{"a":', "truncated"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":1' + b"0" * 400 + b"}", "beyond what a double holds"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":"\\ud800"}', "Parse error"),
    Bad(b'{"id":ID,"result":1}', "`jsonrpc` is missing"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"error":{}}', "`error.code` is missing"),
    Bad(b'{"jsonrpc":"2.0","id":ID}', "`method` is missing"),
    Bad(b'{"jsonrpc":"2.0","id":ID,"result":' + DEEP + b"}", "Too large: depth"),
)

FIRST = b'{"jsonrpc":"2.0","id":ID,"result":1}'
BATCHES: tuple[Bad, ...] = (
    Bad(b"[" + FIRST + b',{"jsonrpc":"2.0","id":0,"result":NaN}]', "Parse error"),
    Bad(b'[{"jsonrpc":"2.0","id":ID,"result":NaN}]', "Parse error"),
    Bad(b'[{"jsonrpc":"2.0","result":NaN,"id":0},{"jsonrpc":"2.0","result":1,"id":ID}]', "Parse error"),
    Bad(b"[" + FIRST + b",]", "trailing comma"),
    Bad(b"[" + FIRST + b',{"jsonrpc":"2.0","id":0,"result":[', "truncated"),
    Bad(b"[" + b",".join([FIRST] * 1001) + b"]", "Too large: batch_length"),
    Bad(b"[" + FIRST + b',{"jsonrpc":"2.0","id":0,"result":' + DEEP + b"}]", "Too large: depth"),
)

NOISE: tuple[Bad, ...] = (
    # no id can be read: the call waits for its answer, and its time-out says what came
    Bad(b"heartbeat", "Parse error"),
    Bad(b'{"method":5}', "`jsonrpc` is missing"),
    Bad(b"{'id':ID,'result':1}", "Parse error"),
    Bad(b"[1]", "Invalid Request"),
    Bad(b"{}", "`jsonrpc` is missing"),
)

STRAYS: tuple[Bad, ...] = (
    Bad(b'{"jsonrpc":"2.0","result":null}', "without an id"),
    Bad(b'{"jsonrpc":"2.0","result":null,"id":null}', "without an id"),
    Bad(b'{"jsonrpc":"2.0","error":{"code":-32601,"message":"Method not found"}}', "Method not found"),
    Bad(b'{"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid Request"},"id":null}', "Invalid Request"),
    Bad(b'{"jsonrpc":"2.0","result":{},"error":{"code":1,"message":"m"},"id":null}', "without an id"),
)
