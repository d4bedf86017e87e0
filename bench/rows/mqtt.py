"""Round trips over MQTT."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.brokers import broker, round_trips
from bench.environments import Missing
from bench.figures import Figure, Row
from bench.referee import Failed, Referee


def _mosquitto(port: int, folder: Path) -> list[str]:
    """As it comes, but for what a round trip needs: Mosquitto leaves the algorithm of Nagle on."""
    config = folder / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\nset_tcp_nodelay true\n")
    return [shutil.which("mosquitto") or "/usr/sbin/mosquitto", "-c", str(config)]


def mqtt(referee: Referee) -> list[Row]:
    """A shared subscription with QoS 1, beside the bare library."""
    try:
        with broker(_mosquitto) as port:
            return round_trips(
                referee,
                "mqtt",
                "MQTT 5",
                "bench.limits.mqtt",
                lambda name: f"mqtt://127.0.0.1:{port}/{name}",
                8_000,
            )
    except (Missing, Failed) as why:
        return [Row("mqtt", "MQTT 5", "us", Figure("dragoman", missing=str(why)))]
