"""Runs the rest of a call beyond its request: an `InboundCall` that goes on after its request was answered, and after
its channel was lost.

Rules:

- It is a call in flight until it ends: it counts in `limits.calls` and `limits.calls_size`, and also in
  `limits.detached_calls`, which callers share fairly.
- It takes over the slot that its request has of the method's `concurrency`, so that a request which waits for its
  detached call needs no second slot; or it waits for a slot of its own, where its request has none.
- Its functions have three quarters of `limits.threads` at most, in fair shares (`ThreadShare`).
- Its time-out and what its Context can do are those of any call. What it sends to the caller goes to the
  channel on which the request came; on a wire without channels nothing is sent.
- A drain waits for it as for other calls in flight, and then ends it; one that waits for an answer which comes in a
  later request is ended at once, since a server that drains takes no requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator
from math import inf
from typing import Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from ..allowance import Allowance, owner_of
from ..channel import Caller
from ..jsonrpc.codec import AnyAnswer, FailedAnswer
from ..jsonrpc.errors import CallRefused, Dialect, LocalError, Refusal
from ..jsonrpc.messages import Notification, Request
from ..jsonrpc.options import NONE, NOT_GIVEN, TEXT, TIME, Rule, check, instance
from ..repeats import Repeats
from .binding.results import to_json
from .dispatch import MessageOrigin
from .inbound import CallRunner, InboundCall
from .method import Method
from .middleware import Call, Next

repeats: Repeats = Repeats(logging.getLogger("dragoman"))

CANCELLED: Final = Refusal("cancelled", "Request cancelled")
PROGRESS_SIZE: Final = 4 * 1024
"""Bytes of a value of progress that is kept; a longer one is dropped: it is kept again with each change of the call."""
_NOTHING: Final = object()
"""Stands for a result that is not there yet."""
_OPTIONS: Final[dict[str, Rule]] = {
    "caller": instance(Caller, "a Caller") | NONE,
    "timeout": TIME | NONE | NOT_GIVEN,
    "about": TEXT,
}


class DetachedCall:
    """A call whose work goes on beyond its request. Use it on the event loop of the request."""

    __slots__ = ("_run",)

    def __init__(self, run: DetachedRun) -> None:
        self._run = run

    def __repr__(self) -> str:
        return f"<DetachedCall of {self._run.method.name}>"

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._run.future.done()

    @property
    def result(self) -> Awaitable[Any]:
        """An awaitable of what `next` returns. It raises what `next` raises, and CallRefused if the call was ended: the
        kind of its `refusal` is "cancelled", "timed_out", "draining", or "busy" if its method had no slot for it. To
        cancel the waiting does not end the call."""
        return _Uncancellable(self._run.future)

    def cancel(self) -> None:
        """End it: `result` raises CallRefused at once, and its work is stopped as far as possible. No effect once it
        has ended."""
        self._run.end(CANCELLED)


class _Uncancellable:
    """An awaitable of a future's result; the future is not cancelled with the waiting."""

    __slots__ = ("_future",)

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self._future = future

    def __await__(self) -> Generator[Any, None, Any]:
        if not self._future.done():
            yield from asyncio.wait([self._future]).__await__()
        return self._future.result()


def detach(
    call: Call,
    next: Next,
    params: Any,
    raw: Any,
    *,
    caller: Caller | None,
    timeout: float | UnsetType | None,
    about: str,
    method: Method | None = None,
    on_progress: Callable[[Raw], object] | None = None,
) -> DetachedRun:
    """Run `next` with this call and these `params`, beyond the request of the call. Nothing of it runs before this
    returns. `raw`: the params as JSON text; `caller`: None for that of the request; `timeout`: seconds, None for ever,
    UNSET for that of the method; `about`: what it is about, for observers, who get the first 256 characters; `method`:
    what it runs as, with a slot of its own; None: as its request does. `on_progress`: gets each progress as JSON text,
    of `PROGRESS_SIZE` at most, on the loop; None: the caller gets it.

    Raises CallRefused if too many calls are in flight, LocalError for a call that runs in place, without an event loop,
    and for wrong options.
    """
    check(f"{call.method} goes on", _OPTIONS, {"caller": caller, "timeout": timeout, "about": about})
    site = call.context._site
    if not isinstance(site, InboundCall):
        raise LocalError(f"{call.method}: a call that runs in place ends with its request, and cannot go on beyond it")
    caller = site.caller if caller is None else caller
    acceptor = _Acceptor(site, caller)
    acceptor.enter()
    slots = None
    if method is None:
        method, slots = site.method, site.take_slot()
    if slots is not None:  # it has its slot already, and must not wait for one
        method = msgspec.structs.replace(method, concurrency=None)
    run = DetachedRun(site, call, next, params, method, acceptor, timeout, on_progress)
    run.use_slot(slots)
    watch = site.runner.service._watch
    if watch is not None:
        parent = None if site.seen is None else site.seen.seen
        run.seen = watch.detached(run.message, acceptor, caller, run.deliver, parent, about[:256], raw)
        run.deliver = run.seen
    site.loop.call_soon(run.start)
    return run


class _Acceptor:
    """The `CallAcceptor` of one detached call, which counts it in the limits until it ends. For observers it has the
    number of the request's channel and the name of its session."""

    __slots__ = ("_dialect", "_number", "_owner", "_runner", "_session_name", "_size", "origin")

    def __init__(self, site: InboundCall, caller: Caller) -> None:
        accepted_by: Any = site.acceptor
        self._dialect: Dialect = accepted_by._dialect
        self._number: int = 0
        self._session_name: str = ""
        if site.seen is not None:
            self._number, self._session_name = site.seen.seen.channel, site.seen.seen.session
        # as long as its request is open, what it asks goes with the answer (2025-11-25's basic/transports)
        self.origin = MessageOrigin(caller, site.peer, site.origin.reply_stream)
        self._owner = owner_of(caller)
        self._runner: CallRunner = site.runner
        self._size = site.size

    def enter(self) -> None:
        """Count the call. Raises CallRefused if there is no room for it."""
        runner = self._runner
        limits = runner.service.limits
        most = min(limits.detached_calls, max(1, limits.calls // 2))
        if runner.detached is None:
            runner.detached = Allowance(most, inf)
        if not runner.detached.take(self._owner, 0.0):
            data = {"limit": "detached_calls", "allowed": most, "retry_after": 1}
            raise CallRefused(Refusal("busy", f"Busy: detached_calls allows {most} at once, in fair shares", data))
        # its request was accepted, perhaps before a drain began, so a drain does not refuse it
        refusal = runner.call_limit.enter(already_accepted=True, size=self._size)
        if refusal is not None:
            runner.detached.give_back(self._owner)
            raise CallRefused(refusal)

    def settle(self, call: InboundCall) -> None:
        """Do nothing: no detached call is found by an id."""

    def release(self, call: InboundCall) -> None:
        """Count the call no more: its work has ended."""
        if self._runner.detached is not None:
            self._runner.detached.give_back(self._owner)
        self._runner.call_limit.leave(self._size)


class DetachedRun(InboundCall):
    """The rest of a call, in flight."""

    __slots__ = ("_call", "_error", "_next", "_on_progress", "_owner", "_refusal", "_returned", "future", "stopped")

    def __init__(
        self,
        site: InboundCall,
        call: Call,
        next: Next,
        params: Any,
        method: Method,
        acceptor: _Acceptor,
        timeout: float | UnsetType | None,
        on_progress: Callable[[Raw], object] | None = None,
    ) -> None:
        message: Request | Notification = Notification(call.method, params)
        if type(site.message) is Request:
            message = Request(call.method, params, site.message.id)
        method = msgspec.structs.replace(
            method,
            handler=self._go_on,
            stream=False,
            timeout=method.timeout if timeout is UNSET else timeout,
        )
        super().__init__(site.runner, method, message, acceptor, acceptor.origin, self._ended, site.size)
        self.future: asyncio.Future[Any] = site.loop.create_future()
        """Gets what `next` returned, or the exception that tells why the call ended."""
        self.stopped: asyncio.Future[None] = site.loop.create_future()
        """Done when its work has ended, which may be after `future` is done: a thread cannot be stopped."""
        self._call, self._next, self._on_progress = call, next, on_progress
        self._owner = acceptor._owner
        self._returned: Any = _NOTHING
        self._error: BaseException | None = None
        self._refusal: Refusal | None = None

    async def thread(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        share, owner, before = self.runner.detached_threads, self._owner, self._threads
        await share.take(owner)
        try:
            return await super().thread(function, arguments)
        finally:
            if self._threads == before:  # else it was abandoned, and has its thread until its function returns
                share.give_back(owner)

    def _thread_ended(self) -> None:
        self.runner.detached_threads.give_back(self._owner)
        super()._thread_ended()

    def use_slot(self, slots: Any) -> None:
        """Hold a slot of its method (None: there is none), and release it at the end of the work."""
        self._slots = slots

    def progress(self, message: Request | Notification, value: Any) -> bool:
        if self._on_progress is None:
            return super().progress(message, value)
        self.renew()
        text = Raw(to_json(value))
        return len(text) <= PROGRESS_SIZE and self.report(self._on_progress, text)

    def report(self, function: Callable[..., object], *arguments: Any) -> bool:
        """Call a function on the loop, from the thread in which the handler runs; what it raises is logged. Return
        False if it is not called, because too many such calls are on their way from the handler's thread, or this call
        has ended."""
        if self.method.kind != "thread":
            return self._report(function, arguments)
        return not self._answered and self._hand_over(self._report, function, arguments)

    def _report(self, function: Callable[..., object], arguments: tuple[Any, ...]) -> bool:
        if self._answered:
            return False
        try:
            function(*arguments)
        except Exception:  # the handler is not at fault
            repeats.error("what takes the progress of %r failed", self.method.name, exc_info=True)
        return True

    async def _go_on(self, inner: Call) -> Any:
        """Run `next`, as the handler of this call. Keeps what it returns or raises."""
        call, next = self._call, self._next
        inner.context.values.update(call.context.values)  # which outer middleware has set
        try:
            self._returned = await next(msgspec.structs.replace(call, params=inner.params, context=inner.context))
        except BaseException as error:
            self._error = error
            raise
        return self._returned

    def refused(self, refusal: Refusal) -> FailedAnswer:
        self._refusal = refusal
        return super().refused(refusal)

    def _gone(self) -> None:
        super()._gone()
        self._on_progress = None
        # leave no reference cycle: the params may be Structs with gc=False, which the garbage collector does not follow
        self.seen, self._error = None, None
        self.method = msgspec.structs.replace(self.method, handler=None)
        self.message = msgspec.structs.replace(self.message, params=UNSET)
        self.stopped.set_result(None)

    def _ended(self, answer: AnyAnswer, /) -> None:
        """Settle `future`, in place of delivering the answer, which nobody waits for."""
        if self.future.done():
            return
        error = self._error
        if self._returned is not _NOTHING:
            self.future.set_result(self._returned)
            return
        if self._refusal is not None:
            error = CallRefused(self._refusal)
        elif error is None or isinstance(error, asyncio.CancelledError):
            error = LocalError(f"{self.method.name}: the handler was cancelled")
        self.future.set_exception(error)
        self.future.exception()  # one that nobody awaits is logged where it was raised
