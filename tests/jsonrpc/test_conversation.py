"""What is owed and what is awaited: ids, duplicates, limits, draining, with no wire and no loop."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule
from msgspec import UNSET, Raw

from dragoman.jsonrpc.codec import key
from dragoman.jsonrpc.conversation import Conversation
from dragoman.jsonrpc.errors import LSP
from dragoman.jsonrpc.limits import SERVER
from dragoman.jsonrpc.messages import Notification

LIMITS = SERVER.but(calls_per_channel=2, waiting_per_channel=2)


class Run:
    """A call that came in; each is only itself."""


class Out(str):
    """A call that went out, of one message with those that are equal to it in their first letter."""

    @property
    def group(self) -> str:
        return self[0]


def fresh() -> Conversation[Run, Out]:
    return Conversation(LIMITS)


def test_a_call_is_owed_until_it_is_settled_once() -> None:
    conversation, run = fresh(), Run()
    assert conversation.idle
    assert conversation.accept(1, run, paused=False) == "start"
    assert not conversation.idle
    assert conversation.settle(1, run)
    assert not conversation.settle(1, run)
    assert not conversation.idle  # its work has not ended
    conversation.release()
    assert conversation.idle


def test_an_answer_that_is_owed_keeps_a_channel_open_when_its_work_has_ended() -> None:
    conversation, run = fresh(), Run()
    conversation.accept(1, run, paused=False)
    conversation.half_closed = True
    conversation.release()
    assert not conversation.idle
    assert not conversation.leaves()
    conversation.settle(1, run)
    assert conversation.leaves()


def test_a_second_call_with_an_id_in_flight_is_refused_and_the_first_goes_on() -> None:
    conversation, first, second = fresh(), Run(), Run()
    assert conversation.accept(key(1), first, paused=False) == "start"
    assert conversation.accept(key(Raw(b"1.0")), second, paused=False) == "duplicate"
    assert not conversation.settle(key(1), second)
    assert conversation.settle(key(1), first)
    assert conversation.accept(key(1), second, paused=False) == "start"


def test_ids_of_another_type_are_other_ids() -> None:
    conversation = fresh()
    for id in (1, "1", Raw(b"null"), "null"):
        assert conversation.accept(key(id), Run(), paused=False) in ("start", "wait")


def test_notifications_have_no_id_and_take_places() -> None:
    conversation = fresh()
    verdicts = [conversation.accept(None, Run(), paused=False) for _ in range(5)]
    assert verdicts == ["start", "start", "wait", "wait", "busy"]
    assert not conversation.inbound


def test_beyond_the_places_calls_wait_in_their_order_and_beyond_the_queue_they_are_refused() -> None:
    conversation = fresh()
    runs = [Run() for _ in range(6)]
    verdicts = [conversation.accept(id, run, paused=False) for id, run in enumerate(runs)]
    assert verdicts == ["start", "start", "wait", "wait", "busy", "busy"]
    assert set(conversation.inbound) == {0, 1, 2, 3}
    assert conversation.next() is None
    conversation.release()
    assert conversation.next() is runs[2]
    assert conversation.next() is None
    conversation.release()
    conversation.release()
    assert conversation.next() is runs[3]
    assert conversation.next() is None


def test_nothing_overtakes_what_waits() -> None:
    conversation, waiting, late = fresh(), Run(), Run()
    assert conversation.accept(1, waiting, paused=True) == "wait"
    assert conversation.accept(2, late, paused=False) == "wait"
    assert [conversation.next(), conversation.next(), conversation.next()] == [waiting, late, None]


def test_what_is_cancelled_while_it_waits_is_never_started() -> None:
    conversation, run, other = fresh(), Run(), Run()
    conversation.accept(1, run, paused=True)
    conversation.accept(2, other, paused=True)
    assert conversation.withdraw(run)
    assert not conversation.withdraw(run)
    assert conversation.settle(1, run)
    assert conversation.next() is other
    assert not conversation.withdraw(other)


def test_draining_refuses_what_is_new_and_lets_the_rest_end() -> None:
    conversation, run = fresh(), Run()
    conversation.accept(1, run, paused=False)
    conversation.draining = True
    assert conversation.accept(2, Run(), paused=False) == "draining"
    assert conversation.accept(None, Run(), paused=False) == "draining"
    assert conversation.settle(1, run)
    conversation.release()
    assert conversation.idle


def test_answers_find_their_calls_once() -> None:
    conversation = fresh()
    first, second = conversation.expect(Out("first")), conversation.expect(Out("second"))
    assert first != second
    assert conversation.resolve(second) == "second"
    assert conversation.resolve(second) is None
    assert conversation.resolve(str(first)) is None
    assert conversation.resolve(99) is None
    assert conversation.resolve(Raw(b"null")) is None
    assert conversation.forget(first)
    assert not conversation.forget(first)
    assert conversation.resolve(first) is None


def test_an_answer_without_an_id_belongs_to_the_only_call_or_batch() -> None:
    conversation = fresh()
    assert conversation.resolve_only() == []
    conversation.expect(Out("one"))
    assert conversation.resolve_only() == ["one"]
    assert conversation.resolve_only() == []
    conversation.expect(Out("two"))
    conversation.expect(Out("three"))
    assert conversation.resolve_only() == ["two", "three"]
    conversation.expect(Out("four"))
    conversation.expect(Out("seven"))
    assert conversation.resolve_only() == []
    assert conversation.abandon() == ["four", "seven"]
    assert conversation.abandon() == []


def test_a_cancel_names_a_call_in_flight_and_nothing_else() -> None:
    conversation, run = fresh(), Run()
    conversation.accept(key("a"), run, paused=False)
    for params in (UNSET, Raw(b"[]"), Raw(b"{}"), Raw(b'{"id":1}'), Raw(b'{"id":null}'), Raw(b"nonsense")):
        assert conversation.cancelled(Notification("$/cancelRequest", params), LSP) is None
    assert conversation.cancelled(Notification("$/cancelRequest", Raw(b'{"id":"a"}')), LSP) is run


def test_progress_finds_its_call() -> None:
    conversation = fresh()
    conversation.expect(Out("one"))
    for params in (UNSET, Raw(b"[1]"), Raw(b'{"token":2}'), Raw(b'{"token":"1"}'), Raw(b"nonsense")):
        assert conversation.progressed(Notification("$/progress", params), LSP) is None
    told = Notification("$/progress", Raw(b'{"token":1,"value":5}'))
    assert conversation.progressed(told, LSP) == ("one", 5)


def test_a_far_end_that_sends_no_more_is_left_once_when_we_are_idle() -> None:
    conversation, run = fresh(), Run()
    assert not conversation.leaves()
    conversation.accept(1, run, paused=False)
    conversation.half_closed = True
    assert not conversation.leaves()
    assert conversation.settle(1, run)
    assert not conversation.leaves()
    assert not conversation.followed
    conversation.release()
    assert conversation.leaves()
    assert not conversation.leaves()
    assert conversation.followed
    conversation.closing = True
    assert not conversation.followed
    conversation.opened()
    assert not conversation.leaves()


class AnyConversation(RuleBasedStateMachine):
    """Whatever happens in whatever order, places and debts add up."""

    going = Bundle("going")

    def __init__(self) -> None:
        super().__init__()
        self.it: Conversation[Run, Out] = fresh()
        self.running = 0
        self.started: set[Run] = set()

    @rule(target=going, id=st.none() | st.integers(0, 4), paused=st.booleans())
    def comes(self, id: int | None, paused: bool) -> tuple[int | None, Run]:
        run = Run()
        known = id is not None and id in self.it.inbound
        verdict = self.it.accept(id, run, paused=paused)
        assert (verdict == "duplicate") is known
        if verdict == "start":
            assert not paused
            self.running += 1
            self.started.add(run)
        return id, run

    @rule(call=consumes(going))
    def is_cancelled(self, call: tuple[int | None, Run]) -> None:
        id, run = call
        owed = id is not None and self.it.inbound.get(id) is run
        if self.it.withdraw(run):
            assert run not in self.started
        assert self.it.settle(id, run) is owed

    @rule()
    def place_for_the_next(self) -> None:
        run = self.it.next()
        if run is not None:
            assert run not in self.started
            self.started.add(run)
            self.running += 1

    @precondition(lambda self: self.running)
    @rule()
    def work_ends(self) -> None:
        self.it.release()
        self.running -= 1

    @invariant()
    def adds_up(self) -> None:
        assert self.it.running == self.running <= LIMITS.calls_per_channel
        assert len(self.it.waiting) <= LIMITS.waiting_per_channel
        assert not self.started & set(self.it.waiting)


TestAnyConversation = AnyConversation.TestCase
TestAnyConversation.settings = settings(max_examples=50, stateful_step_count=30, deadline=None)


def test_a_notification_that_waits_is_not_idle() -> None:
    conversation = fresh()
    waiting = Run()
    assert conversation.accept(None, waiting, paused=True) == "wait"
    assert not conversation.idle
    assert conversation.withdraw(waiting)
    assert conversation.idle


def test_an_answer_that_writes_the_same_number_otherwise_is_the_same_answer() -> None:
    conversation = fresh()
    for text in (b"1.0", b"2e0", b"30e-1"):
        conversation.expect(Out(text.decode()))
        assert conversation.resolve(Raw(text)) == text.decode()
    conversation.expect(Out("four"))
    for other in (Raw(b"null"), Raw(b"true"), Raw(b'"4"'), "4", Raw(b"4.5"), Raw(b"[4]")):
        assert conversation.resolve(other) is None
    assert conversation.resolve(4) == "four"
