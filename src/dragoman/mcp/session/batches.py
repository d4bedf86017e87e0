"""A batch of a session: several messages whose answers are sent together."""

from __future__ import annotations

from collections.abc import Callable

from ...channel import Caller
from ...jsonrpc.errors import RpcError
from ...jsonrpc.messages import Batch, Malformed, Request, Single
from ...rpc.batch_responder import BatchResponder
from ...rpc.channel_peer import ChannelPeer
from ...rpc.observing import Deliver, answers_only, nothing


def take_batch(
    batch: Batch,
    raw: bytes,
    peer: ChannelPeer,
    caller: Caller,
    stream: Callable[[bytes], bool],
    respond: Deliver,
    accept: Callable[[], None],
) -> bool:
    """Serve a batch of messages; return whether an answer is owed. `stream` sends a message ahead of the answers,
    `respond` sends all answers, `accept` says that there will be none."""
    service = peer._runner.service
    watch = service._watch
    observed = watch is not None and not answers_only(batch)
    whole = watch.came_in(batch, peer, caller, nothing, raw) if watch is not None and observed else None
    owed = any(isinstance(one, Request) or (isinstance(one, Malformed) and one.answerable) for one in batch.messages)

    def start(message: Single, deliver: Deliver) -> None:
        if type(message) is Request and message.method == "initialize":
            # "The initialize request MUST NOT be part of a JSON-RPC batch" (basic/lifecycle)
            wrong = RpcError.of(-32600, "Invalid Request: initialize stands alone")
            answer = service._answers.failed(message, wrong)
            if watch is not None and whole is not None:
                watch.came_in(message, peer, caller, nothing, batch=whole.seen).over(answer)
            deliver(answer)
        else:
            peer.take(message, deliver, stream, caller, batch=whole)

    def done(found: list[bytes], size: int) -> None:
        answer = service._answers.batch(found, size) if found else None
        if whole is not None:
            whole.over(answer)
        if found or owed:
            respond(answer)
        else:
            accept()

    limits = service.limits
    width, allowed = limits.batch_concurrency, limits.response_size
    BatchResponder(batch.messages, start, done, service._answers.fault, width=width, allowed=allowed).step()
    return owed
