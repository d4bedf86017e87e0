"""What was counted, and how it is printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from msgspec import Struct, field

from .ledger import Runs
from .load import FORGOTTEN, Call, Load

SLACK = 2.0
"""Seconds after its deadline within which a call must have ended: two cores are shared with the broker and its
workers."""


class Tally(Struct, kw_only=True):
    """One run of a scenario."""

    title: str
    blows: int
    """Kills or restarts."""
    seconds: float
    calls: int
    answered: int
    accepted: int
    """Notifications that the broker had confirmed."""
    errors: dict[str, int]
    forgotten: int
    """Calls that were given up because the broker was killed before it had saved them."""
    pending: int
    """Calls that never ended."""
    late: int
    """Calls that ended more than `SLACK` after their deadline."""
    longest: float
    """Seconds that the longest call took to its end, whatever that was."""
    runs: int
    marked: int
    twice: int
    """Keys that were run more than once."""
    unmarked: list[str]
    """Calls that must not be run twice, and were, by two workers that were not told."""
    overtaken: list[str]
    """The same, of which the one that knew began first."""
    lost: list[str]
    """Accepted notifications that no worker ever ran, and that were not set aside as suspects either."""
    unanswered: list[str] = field(default_factory=list)
    """Calls that were answered, though no worker ran them to the end."""
    reconnections: list[float] = field(default_factory=list)
    """Seconds from the return of the broker, or of a wire, to the first answer to a call that was begun after its
    loss."""
    waited: float = 0.0
    """Seconds that the longest call took of the time in which the broker was there."""

    def __str__(self) -> str:
        ended = f"errors {self.errors or 'none'}, forgotten {self.forgotten}, never ended {self.pending}, ended after the deadline {self.late}"
        charged = f"of `charge` twice unmarked {len(self.unmarked)}, marked before unmarked {len(self.overtaken)}"
        lines = [
            f"{self.title}: {self.blows} in {self.seconds:.0f} s",
            f"  calls {self.calls}, answered {self.answered}, notifications accepted {self.accepted}, {ended}",
            f"  runs {self.runs}, of which marked {self.marked}; keys run twice {self.twice}, {charged}",
            f"  accepted and lost {len(self.lost)}; longest time to an end {self.longest:.2f} s",
        ]
        if self.reconnections:
            times = sorted(self.reconnections)
            lines.append(
                f"  reconnection: median {times[len(times) // 2]:.2f} s, longest {times[-1]:.2f} s, {len(times)} times"
            )
        if self.waited:
            lines.append(f"  longest time to an end while the broker was there {self.waited:.2f} s")
        return "\n".join(lines)


def tally(
    title: str,
    blows: int,
    seconds: float,
    load: Load,
    runs: Runs,
    reconnections: Sequence[float] = (),
    aside: Collection[str] = (),
) -> Tally:
    """Count. `aside`: the keys of notifications that were found where the wire puts what no worker survived, or that
    the broker had not saved when it was killed."""
    notes = [call for call in load.calls if call.method == "note"]
    calls = [call for call in load.calls if call.method != "note"]
    ended = [call for call in calls if call.outcome]
    accepted = [call for call in notes if call.outcome == "answered"]
    heard = runs.begun.get("note", {})
    return Tally(
        title=title,
        blows=blows,
        seconds=seconds,
        calls=len(calls),
        answered=sum(call.outcome == "answered" for call in calls),
        accepted=len(accepted),
        errors=dict(Counter(call.outcome for call in load.calls if call.outcome not in ("", "answered", FORGOTTEN))),
        forgotten=sum(call.outcome == FORGOTTEN for call in load.calls),
        pending=sum(not call.outcome for call in load.calls),
        late=sum(call.end - call.start > load.deadline + SLACK for call in ended),
        longest=max((call.end - call.start for call in ended), default=0.0),
        runs=runs.total(),
        marked=runs.marked(),
        twice=runs.twice(),
        unmarked=runs.unmarked("charge"),
        overtaken=runs.overtaken("charge"),
        lost=[call.key for call in accepted if call.key not in heard and call.key not in aside],
        unanswered=[
            call.key
            for call in calls
            if call.outcome == "answered" and not runs.done.get(call.method, {}).get(call.key)
        ],
        reconnections=list(reconnections),
    )


def present(call: Call, outages: Sequence[tuple[float, float]]) -> float:
    """Seconds that a call took, without those in which the broker was away."""
    away = sum(max(0.0, min(call.end, there) - max(call.start, gone)) for gone, there in outages)
    return call.end - call.start - away
