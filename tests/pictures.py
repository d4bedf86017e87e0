"""The pictures of the documentation, drawn from a few words each: `python -m tests.pictures` writes docs/pictures.

Two kinds: boxes on a grid with arrows between them, and the messages between two or more parties, from top to bottom.
They are SVG with a background of their own, so that they are read in light and dark pages alike, and nothing draws them
in the browser.
"""

from __future__ import annotations

from html import escape

from msgspec import Struct

from tests.snippets import ROOT

PLACE = ROOT / "docs" / "pictures"
FONT = 'font-family="ui-sans-serif, system-ui, sans-serif" font-size="13"'
INK, LINE, FILL, SOFT = "#1f2933", "#52606d", "#e8eef7", "#fff4dc"
WIDE, HIGH, GAP_X, GAP_Y, EDGE = 172, 44, 110, 40, 16
"""Pixels: of a box, between boxes, and around all."""


class Box(Struct, frozen=True):
    """One box. `at`: column and row, halves too; lines of `text` are split at "|"."""

    name: str
    at: tuple[float, float]
    text: str
    stored: bool = False
    """It keeps messages: drawn in another colour."""


class Arrow(Struct, frozen=True):
    """From box to box, with words. `dotted`: of another kind than the usual ones."""

    start: str
    end: str
    text: str = ""
    dotted: bool = False


class Drawing(Struct, frozen=True):
    """Boxes and arrows. `title` is read aloud instead of the picture."""

    title: str
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]

    def svg(self) -> str:
        """The picture."""
        size_x = max(box.at[0] for box in self.boxes) * (WIDE + GAP_X) + WIDE + 2 * EDGE
        size_y = max(box.at[1] for box in self.boxes) * (HIGH + GAP_Y) + HIGH + 2 * EDGE
        places = {box.name: center(box) for box in self.boxes}
        parts = [self._arrow(one, places) for one in self.arrows]
        for box in self.boxes:
            x, y = places[box.name]
            colour = SOFT if box.stored else FILL
            parts.append(
                f'<rect x="{x - WIDE / 2:g}" y="{y - HIGH / 2:g}" width="{WIDE}" height="{HIGH}"'
                f' rx="{20 if box.stored else 6}" fill="{colour}" stroke="{LINE}"/>'
            )
            lines = box.text.split("|")
            for number, line in enumerate(lines):
                at = y + 4.5 + (number - (len(lines) - 1) / 2) * 16
                parts.append(f'<text x="{x:g}" y="{at:g}" text-anchor="middle" fill="{INK}">{escape(line)}</text>')
        return whole(self.title, size_x, size_y, parts)

    def _arrow(self, one: Arrow, places: dict[str, tuple[float, float]]) -> str:
        (x, y), (to_x, to_y) = places[one.start], places[one.end]
        back = any(other.start == one.end and other.end == one.start for other in self.arrows)
        x, y, to_x, to_y = between(x, y, to_x, to_y, 7 if back else 0)
        dots = ' stroke-dasharray="4 4"' if one.dotted else ""
        drawn = f'<path d="M{x:g} {y:g}L{to_x:g} {to_y:g}" stroke="{LINE}" fill="none" marker-end="url(#end)"{dots}/>'
        if not one.text:
            return drawn
        above = -6 if not back or to_x >= x else 16
        middle = f'x="{(x + to_x) / 2:g}" y="{(y + to_y) / 2 + above:g}"'
        return f'{drawn}<text {middle} text-anchor="middle" font-size="11" fill="{LINE}">{escape(one.text)}</text>'


def center(box: Box) -> tuple[float, float]:
    """Of a box, in pixels."""
    column, row = box.at
    return EDGE + column * (WIDE + GAP_X) + WIDE / 2, EDGE + row * (HIGH + GAP_Y) + HIGH / 2


def between(x: float, y: float, to_x: float, to_y: float, aside: float) -> tuple[float, float, float, float]:
    """The line between the edges of two boxes, a little aside where another goes back."""
    far = abs(to_x - x) > WIDE
    if far:
        way = 1 if to_x > x else -1
        return x + way * WIDE / 2, y - way * aside, to_x - way * WIDE / 2, to_y - way * aside
    way = 1 if to_y > y else -1
    return x + way * aside, y + way * HIGH / 2, to_x + way * aside, to_y - way * HIGH / 2


class Talk(Struct, frozen=True):
    """Messages between parties. A step is "A > B: words", or "A: words" for what A does meanwhile."""

    title: str
    parties: tuple[str, ...]
    steps: tuple[str, ...]

    def svg(self) -> str:
        """The picture."""
        apart = 330
        places = {name: EDGE + WIDE / 2 + number * apart for number, name in enumerate(self.parties)}
        bottom = EDGE + HIGH + 46 * len(self.steps) + 12
        parts = []
        for name, x in places.items():
            parts.append(f'<path d="M{x:g} {EDGE + HIGH}V{bottom}" stroke="{LINE}" stroke-dasharray="2 4"/>')
            parts.append(
                f'<rect x="{x - WIDE / 2:g}" y="{EDGE}" width="{WIDE}" height="{HIGH}" rx="6" fill="{FILL}" stroke="{LINE}"/>'
                f'<text x="{x:g}" y="{EDGE + 26}" text-anchor="middle" fill="{INK}">{escape(name)}</text>'
            )
        for number, step in enumerate(self.steps):
            y = EDGE + HIGH + 46 * number + 38
            head, words = step.split(": ", 1)
            start, _, end = head.partition(" > ")
            x = places[start]
            if end:
                parts.append(f'<path d="M{x:g} {y}H{places[end]:g}" stroke="{LINE}" marker-end="url(#end)"/>')
                middle, shown = (x + places[end]) / 2, y - 7
            else:
                wide = 7.2 * len(words) + 16
                parts.append(
                    f'<rect x="{x - wide / 2:g}" y="{y - 20}" width="{wide:g}" height="26" rx="4" fill="{SOFT}" stroke="{LINE}"/>'
                )
                middle, shown = x, y - 3
            parts.append(f'<text x="{middle:g}" y="{shown}" text-anchor="middle" fill="{INK}">{escape(words)}</text>')
        return whole(self.title, EDGE * 2 + WIDE + apart * (len(self.parties) - 1) + 90, bottom + EDGE, parts)


def whole(title: str, wide: float, high: float, parts: list[str]) -> str:
    """The file."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide:g} {high:g}" width="{wide:g}" role="img" {FONT}>'
    )
    tip = f'<marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" fill="{LINE}"/></marker>'
    back = f'<rect width="{wide:g}" height="{high:g}" rx="8" fill="#ffffff"/>'
    return "\n".join([head, f"<title>{escape(title)}</title>", f"<defs>{tip}</defs>", back, *parts, "</svg>"]) + "\n"


WORKERS = (Box("one", (2, 0), "worker 1"), Box("two", (2, 1), "worker 2"))


def broker(title: str, queue: str, box: str, control: str, dead: str = "") -> Drawing:
    """A caller, a queue, two workers, and the caller's mailbox. `control`, `dead`: empty where there is none."""
    boxes = [
        Box("caller", (0, 0.5), "caller"),
        Box("queue", (1, 0), queue, True),
        Box("box", (1, 1), box, True),
        *WORKERS,
    ]
    arrows = [
        Arrow("caller", "queue", "request"),
        Arrow("queue", "one"),
        Arrow("queue", "two"),
        Arrow("two", "box", "answer"),
        Arrow("box", "caller"),
    ]
    if control:
        boxes.append(Box("control", (1, 2), control, True))
        arrows += [Arrow("caller", "control", "cancel, broadcast", True), Arrow("control", "two", "", True)]
    if dead:
        boxes.append(Box("dead", (3, 0.5), dead, True))
        arrows += [Arrow("one", "dead", "set aside", True), Arrow("two", "dead", "", True)]
    return Drawing(title, tuple(boxes), tuple(arrows))


PICTURES: dict[str, Drawing | Talk] = {
    "call": Drawing(
        "The way of a call: from the wire through the channel end and the dispatcher to your function, and its answer back.",
        (
            Box("wire", (0, 0), "wire|TCP, HTTP, a broker..."),
            Box("channel", (1, 0), "channel or exchange|whole messages"),
            Box("end", (2, 0), "channel end|slots, limits, ids"),
            Box("dispatcher", (2, 1), "dispatcher|finds the method"),
            Box("binding", (1, 1), "binding|decodes arguments"),
            Box("runner", (0, 1), "runner|in place, task, thread"),
            Box("function", (0, 2), "your function"),
            Box("answer", (1, 2), "answer|encoded once"),
            Box("back", (2, 2), "where it was asked|one write a turn"),
        ),
        (
            Arrow("wire", "channel", "bytes"),
            Arrow("channel", "end", "message"),
            Arrow("end", "dispatcher"),
            Arrow("dispatcher", "binding", "params"),
            Arrow("binding", "runner", "arguments"),
            Arrow("runner", "function"),
            Arrow("function", "answer", "result"),
            Arrow("answer", "back", "bytes"),
        ),
    ),
    "replicas": Drawing(
        "Clients reach any of three replicas through a balancer; the replicas share a store and a bus.",
        (
            Box("client", (0, 1), "clients"),
            Box("balancer", (1, 1), "any balancer|no stickiness"),
            Box("a", (2, 0), "replica 1"),
            Box("b", (2, 1), "replica 2"),
            Box("c", (2, 2), "replica 3"),
            Box("bus", (3, 1), "store and bus|Redis, NATS, RabbitMQ", True),
        ),
        (
            Arrow("client", "balancer", "HTTP"),
            Arrow("balancer", "a"),
            Arrow("balancer", "b"),
            Arrow("balancer", "c"),
            Arrow("a", "bus"),
            Arrow("b", "bus", "sessions, streams"),
            Arrow("c", "bus"),
        ),
    ),
    "mqtt": broker(
        "A call over MQTT: a shared subscription, the caller's response topic, and topics for control and dead letters.",
        "lamp|$share/dragoman/lamp",
        "lamp/reply/...|Response Topic",
        "lamp/control",
        "lamp/dead",
    ),
    "nats": broker(
        "A call over NATS: a queue group, the caller's inbox, and subjects for control.",
        "calculator|queue group workers",
        "_INBOX...|the caller's inbox",
        "calculator.control|calculator.all",
    ),
    "jetstream": broker(
        "A call through a JetStream work queue: workers pull, answer to the caller's inbox, then acknowledge.",
        "stream work|subject orders",
        "_INBOX...",
        "",
        "stream work-dead|orders.dead",
    ),
    "redis": broker(
        "A call over Redis: a stream with a consumer group, a stream for the caller's answers, published control.",
        "calculator|stream, group workers",
        "calculator:to:...|the caller's stream",
        "calculator:control@0|published",
        "calculator:dead",
    ),
    "rabbitmq": broker(
        "A call over RabbitMQ: a quorum queue, the caller's direct reply queue, an exchange for control.",
        "calculator|quorum queue",
        "amq.rabbitmq.reply-to|direct reply",
        "calculator.control|fanout exchange",
        "calculator.dead",
    ),
    "asking": Talk(
        "A question in the stateless revision: the call ends at the question and is made again with the answer.",
        ("client", "server"),
        (
            "client > server: tools/call book {day}",
            "server: the handler runs up to ctx.elicit",
            "server > client: input_required: a form, a sealed state",
            "client > server: tools/call book {day}, answer, state",
            "server: the handler runs again, from the top",
            "server > client: result",
        ),
    ),
}


if __name__ == "__main__":
    PLACE.mkdir(exist_ok=True)
    for name, drawing in PICTURES.items():
        (PLACE / f"{name}.svg").write_text(drawing.svg())
