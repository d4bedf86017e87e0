"""The table of wire cases over RabbitMQ."""

from __future__ import annotations

from dragoman.channel import Options
from dragoman.transports.amqp import AmqpPost
from dragoman.transports.urls import parse

from .engines import Engine, name
from .wire_table import every_case


async def test_every_case_has_its_answer(rabbitmq: Engine) -> None:
    url = f"{rabbitmq.url}/{name()}"
    post = AmqpPost(parse(url), Options())
    await post.connect()
    await every_case(url, post)


async def test_every_case_has_its_answer_by_direct_reply(rabbitmq: Engine) -> None:
    url = f"{rabbitmq.url}/{name()}"
    post = AmqpPost(parse(f"{url}?reply=direct"), Options())
    await post.connect()
    await every_case(url, post)
