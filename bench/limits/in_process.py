"""The limit of dispatch in process."""

from __future__ import annotations

from bench.limits.rpc import answer, answer_batch
from bench.worker import BATCH, SINGLE, offer

if __name__ == "__main__":
    offer({"single": lambda: answer(SINGLE), "batch": lambda: answer_batch(BATCH)})
