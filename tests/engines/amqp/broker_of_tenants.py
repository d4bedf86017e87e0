"""A RabbitMQ with the tenants of the page."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from ..brokers import Engine, engine, rabbitmq_recipe
from ..tenants import PASSWORDS, WHO, rules


def _user(name: str) -> dict[str, object]:
    """A user as RabbitMQ imports it (https://www.rabbitmq.com/docs/passwords): a salt, and the digest of it and the
    password."""
    salt = b"salt"
    digest = b64encode(salt + sha256(salt + PASSWORDS[name].encode()).digest()).decode()
    return {
        "name": name,
        "password_hash": digest,
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": "",
    }


@contextmanager
def broker_of_tenants() -> Iterator[Engine]:
    """One that has these users, with these permissions."""

    def recipe(program: str, folder: Path, port: int) -> tuple[list[str], dict[str, str], str]:
        started = rabbitmq_recipe(program, folder, port)
        definitions = json.loads(rules("amqp_tenants.json"))
        definitions |= {"users": [_user(name) for name in WHO], "vhosts": [{"name": "/"}]}
        (folder / "definitions.json").write_text(json.dumps(definitions))
        with (folder / "rabbitmq.conf").open("a") as file:
            file.write(f"load_definitions = {folder}/definitions.json\n")
        return started

    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("DRAGOMAN_TEST_AMQP", raising=False)
        with engine("amqp", "rabbitmq-server", recipe, "/usr/lib/rabbitmq/bin/rabbitmq-server") as one:
            yield one
