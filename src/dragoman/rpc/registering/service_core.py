"""What is behind a `Service`: its methods, what answers their calls without a wire, and what wires ask of it.

This module imports no asyncio, so a script that only answers bytes does not pay for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET, Raw

from ...channel import Caller
from ...jsonrpc.codec import Answer, Wire, first_byte, plain, plain_batch
from ...jsonrpc.errors import LocalError, RpcError, too_large
from ...jsonrpc.leniency import STRICT, Leniency, chosen
from ...jsonrpc.limits import SERVER, Limits
from ...jsonrpc.messages import Batch, Malformed, Message, Notification, Request
from ...jsonrpc.options import check
from ...jsonrpc.scanner import HOLDABLE, odd
from ...observer import OBSERVER, Observer
from ..binding.binding import bind
from ..context import Context
from ..dispatch import HERE, Dispatcher, LooplessAcceptor, Origin, Router
from ..method import SERVICE, Handler, Method, living
from ..middleware import Middleware
from ..observing import Place, Watch
from ..responses import Answers, Debug
from .methods import Registered

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from ...access import Verifiers
    from ..background import Portal
    from ..runner import Runner


class ServiceCore(Registered):
    """A service as the rooms of dragoman see it, with the options of `Service`. `answers` and `dispatcher` are the
    library's.
    """

    def __init__(
        self,
        name: str,
        *,
        version: str = "0.0.0",
        title: str | None = None,
        description: str | None = None,
        limits: Limits = SERVER,
        middleware: Sequence[Middleware] = (),
        lenient: Leniency | bool = False,
        accept_v1: bool = False,
        null_id: Literal["request", "notification"] = "request",
        string_codes: bool = False,
        debug: bool = False,
        discover: bool = True,
        errors: Iterable[type[RpcError]] = (),
        servers: Iterable[str] = (),
        auth: Verifiers | None = None,
    ) -> None:
        super().__init__(name, middleware)
        self.errors = tuple(errors)
        check(f"Service {name!r}", {"errors": SERVICE["errors"]}, {"errors": self.errors})  # it may be an iterator
        self.servers: tuple[str, ...] = tuple(servers)
        """URLs where it can be reached, for the OpenRPC document."""
        self.auth = auth
        self._bound_by(limits)
        self.version = version
        self.title = title
        self.description = description
        self.lenient: Leniency = chosen(lenient, accept_v1=accept_v1, null_id=null_id, string_codes=string_codes)
        """What is accepted beyond the specification."""
        self.answers: Answers = Answers(limits, Debug(debug))
        self.router: Router = self._by_name
        """Finds the method for a message; a protocol on top with rules of its own puts its router here."""
        self.quick: dict[Any, Handler] = self._inline
        """What `answer_inline` may answer: nothing while there are observers, which the dispatcher tells."""
        self.observers: tuple[Observer, ...] = ()
        """Those that `observe` gave, in order."""
        self.watch: Watch | None = None
        """Its observers, where it has some."""
        self.dispatcher: Dispatcher = Dispatcher(self)
        self._hosts: dict[AbstractEventLoop, Runner] = {}
        """What runs `answer_async`: frameworks call it on a loop for each of their threads."""
        self._behind: Runner | None = None
        self._portal: Portal | None = None
        self._document: tuple[dict[str, Any], Raw] | None = None
        if discover:
            self._offer_discovery()

    def _offer_discovery(self) -> None:
        method = Method("rpc.discover", bind(self._discover, context_type=Context), "inline")
        self._internal[method.name] = method
        self.link(method)

    def _bound_by(self, limits: Limits) -> None:
        self.limits = limits
        self._short = min(HOLDABLE, 2 * limits.depth)
        """A message of at most this many bytes in its usual shape needs no further check."""
        self.modest: int = min(limits.response_size, 2 * limits.depth)
        """An answer of at most this many bytes is within every limit."""

    @property
    def debug(self) -> bool:
        """Whether exceptions' texts and the reasons of refusals are sent to callers."""
        return self.answers.switch.on

    @debug.setter
    def debug(self, debug: bool) -> None:
        self.answers.switch.on = debug

    def observe(self, observer: Observer) -> Callable[[], None]:
        """As `Service.observe`."""
        check("Service.observe", {"observer": OBSERVER}, locals())
        self._watched((*self.observers, observer))
        ends = [observer]  # an end that is called twice ends one registration

        def over() -> None:
            if ends:
                self.unobserve(ends.pop())

        return over

    def unobserve(self, observer: Observer) -> None:
        """Take back one `observe`, of this service or of the one that it is a copy of."""
        found = [at for at, one in enumerate(self.observers) if one is observer]
        if found:
            self._watched((*self.observers[: found[-1]], *self.observers[found[-1] + 1 :]))

    def remove(self, name: str, *, back: bool = False) -> None:
        """As `Registered.remove`."""
        super().remove(name, back=back)
        for one in {self._origin, *self._copies}:
            if isinstance(one, ServiceCore) and one.watch is not None:
                one.watch.removed(name)

    def _watched(self, observers: tuple[Observer, ...]) -> None:
        self.observers = observers
        self.watch = Watch(self.name, observers) if observers else None
        self.quick = {} if observers else self._inline

    def restrict(self, limits: Limits) -> None:
        """Answer under other limits from now on."""
        self._bound_by(limits)
        self.answers = msgspec.structs.replace(self.answers, limits=limits)

    def within(self, limits: Limits) -> ServiceCore:
        """The same service under other limits, including methods added later."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        other.restrict(limits)
        other.dispatcher = Dispatcher(other)
        other._hosts = {}
        other._behind = other._portal = None
        self._copies.add(other)
        return other

    def _by_name(
        self, message: Request | Notification, caller: Caller, peer: Any
    ) -> tuple[Method | None, Request | Notification]:
        method = self._table.get(message.method) or self._internal.get(message.method)
        if type(message) is Request and message.condensed is not None:  # its parameters are decoded from the whole text
            message = msgspec.structs.replace(message, condensed=None)
        life = self._life
        if life is None or method is None:
            return method, message
        return living(life, method, self.handler), message

    def openrpc(self) -> dict[str, Any]:
        """The OpenRPC 1.3 document of this service."""
        from ..openrpc import document  # noqa: PLC0415  (start-up: for those who ask for it)

        return document(self)

    def shown_methods(self, caller: Caller) -> list[str]:
        """The names of the methods that this caller may see."""
        return [name for name, one in self.methods.items() if one.access is None or one.access.shown(caller)]

    def _discover(self, context: Context) -> Any:
        """The document as JSON, made again only when there are other methods, because it is costly to make; without
        methods that are not for this caller."""
        shown = set(self.shown_methods(context.caller))
        if len(shown) < len(self.methods):
            found = self.openrpc()
            return found | {"methods": [one for one in found["methods"] if one["name"] in shown]}
        now = {one.name: one.binding for one in self._table.values()}
        if self._document is None or self._document[0] != now:
            self._document = now, Raw(msgspec.json.encode(self.openrpc()))
        return self._document[1]

    # -- answering

    def oversized(self, raw: bytes, place: Place) -> bytes:
        """The answer to a message above `limits.message_size`, which is not read."""
        answer = self.answers.oversized(len(raw))
        if self.watch is not None:
            refusal = too_large("message_size", self.limits.message_size, len(raw))
            self.watch.refused(Malformed("too_large", refusal.reason), place, Caller(), answer, refusal, raw)
        return answer

    def answer_inline(self, raw: bytes, lenient: Leniency | None = None) -> bytes | Wire | None:
        """The hot path: the answer to a request in its usual shape, or a batch of them, for quick methods. `lenient`:
        of the channel on which it came; None: the service's own.

        Of everything else nothing has run: `read` takes it, with the `Wire` where the text was decoded to one.
        """
        try:
            if raw[0] == 91:  # "["
                return self._batch_inline(raw, self.lenient if lenient is None else lenient)
            wire = plain(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError):
            return None
        except (KeyError, TypeError) as error:
            raise LocalError(f"{self.name}: a message is bytes, not {raw!r:.60}") from error
        id = wire.id
        binding = self.quick.get(wire.method)
        if (
            binding is None
            or id is UNSET
            or ((len(raw) > self._short or not raw.isascii()) and odd(raw, self.limits.depth))
        ):
            return wire
        take, function, encode = binding.arguments, binding.function, binding.encode  # to call a slot costs more
        try:
            arguments = take(wire.params)
        except (Exception, SystemExit) as error:
            loose = (self.lenient if lenient is None else lenient) is not STRICT
            return wire if loose or self._wordy(wire, raw) else self.answers.failed(_request(wire), error)
        if (id == 0 and b"-0" in raw) or (type(id) is str and len(id) > self.limits.id_length):
            return wire
        try:
            value = function(*arguments)
            answer = encode(Answer(None if value is UNSET else value, id))
        except BaseException as error:
            return self.answers.failed(_request(wire), error)
        return answer if len(answer) <= self.modest else self.answers.fitting(Request("", UNSET, id), answer)

    def _wordy(self, wire: Wire, raw: bytes) -> bool:
        """Whether more than the arguments is wrong with a message, so that the slow path must describe it."""
        id, params = wire.id, wire.params
        return (
            (params is not UNSET and first_byte(params) not in b"[{")
            or (id == 0 and b"-0" in raw)
            or (type(id) is str and len(id) > self.limits.id_length)
        )

    def _batch_inline(self, raw: bytes, lenient: Leniency) -> bytes | None:
        wires = plain_batch(raw)
        quick = self.quick
        try:
            calls = [(quick[wire.method], wire) for wire in wires]
        except KeyError:
            return None
        if not 0 < len(wires) <= self.limits.batch_length or odd(raw, self.limits.depth + 1):
            return None
        if lenient is not STRICT and any(w.params is not UNSET and first_byte(w.params) == _NULL for w in wires):
            return None
        longest, minus = self.limits.id_length, _MINUS in raw and b"-0" in raw
        if minus or {type(wire.id) for wire in wires} != _INTEGERS:
            for id in [wire.id for wire in wires]:
                if id is UNSET or (minus and id == 0) or (type(id) is str and len(id) > longest):
                    return None
        return self.dispatcher.run_together(calls, lenient)

    async def answer_async(self, raw: bytes, *, caller: Caller = HERE.caller) -> bytes | None:
        """As `Service.answer_async`."""
        from ..runner import runner_here  # noqa: PLC0415  (asyncio is paid for only where there is a loop)

        return await runner_here(self._hosts, self).answer(raw, caller)

    async def _answer_behind(self, raw: bytes, caller: Caller) -> bytes | None:
        """`answer_async` on the background loop, with a runner of its own, because two loops must not share one."""
        from ..runner import Runner  # noqa: PLC0415  (asyncio is paid for only where there is a loop)

        if self._behind is None:
            self._behind = Runner(self)
        if self._portal is None and self.life is not None:  # begun here, and ended with the interpreter
            from ..background import Portal  # noqa: PLC0415  (as above)

            self._portal = Portal("service", self.life.stop)
            await self.life.start()
        return await self._behind.answer(raw, caller)

    def answer_read(self, message: Message, raw: bytes, caller: Caller) -> bytes | None:
        """The answer to a message that is not answered in place; inside a running loop nothing of it runs."""
        kinds = set()
        for one in message.messages if type(message) is Batch else (message,):
            if type(one) is Request or type(one) is Notification:
                method = self._table.get(one.method) or self._internal.get(one.method)
                if method is not None and (self.life is not None or not method.quick):
                    kinds.add("async" if self.life is not None else method.kind)
        if kinds:
            if inside_a_loop():
                raise LocalError("answer() would block the running loop: use `await service.answer_async(raw)` here")
            if "async" in kinds:
                from ..background import run as run_behind  # noqa: PLC0415  (asyncio is paid for only by async methods)

                return run_behind(lambda: self._answer_behind(raw, caller))
        acceptor = LooplessAcceptor(self.dispatcher)
        answers: list[bytes | None] = []
        origin = HERE if caller is HERE.caller else Origin(caller)
        self.dispatcher.dispatch(message, acceptor, origin, lambda answer, _=None: answers.append(answer), raw)
        if acceptor.error is not None:
            raise acceptor.error
        return answers[0]


_INTEGERS = {int}
_NULL = ord("n")
_MINUS = ord("-")  # one byte is found ten times faster than two, and most texts have none


def _request(wire: Wire) -> Request:
    """A call in its usual shape as a message."""
    return Request(str(wire.method), wire.params, wire.id)


def inside_a_loop() -> bool:
    """Whether a loop runs in this thread, found out without importing asyncio."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None
