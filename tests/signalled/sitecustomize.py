"""Raises the signals that a test sends to this process on Windows; Python imports it at its start."""

import contextlib
import os
import signal
import socket
import threading


def _raise(port: int) -> None:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)) as test:
        while number := test.recv(1):
            signal.raise_signal(number[0])


if port := os.environ.pop("DRAGOMAN_SIGNALLED", ""):  # not for the processes that this one starts
    threading.Thread(target=_raise, args=[int(port)], daemon=True).start()
