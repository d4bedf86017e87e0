"""What a child process gets of our environment.

A server that is started is often another's program, and environments hold secrets: keys of clouds, tokens for other
servers. So a child gets the few variables that a program needs to run, the same as from the official SDKs of MCP and
`LANG`, and what is given for it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final

PASSED: Final = (
    (
        "APPDATA",
        "HOMEDRIVE",
        "HOMEPATH",
        "LOCALAPPDATA",
        "PATH",
        "PATHEXT",
        "PROCESSOR_ARCHITECTURE",
        "SYSTEMDRIVE",
        "SYSTEMROOT",
        "TEMP",
        "USERNAME",
        "USERPROFILE",
        "LANG",
    )
    if sys.platform == "win32"
    else ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "LANG")
)
"""The variables that every child gets (modelcontextprotocol/python-sdk, `DEFAULT_INHERITED_ENV_VARS`)."""
OURS: Final = "DRAGOMAN_"
"""How the names of our own variables begin: secrets, tokens, a worker's sockets. A child gets them only if given."""


def child_environment(
    given: Mapping[str, str] | None, inherit: bool, environment: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Return the environment of a child: `given`, and of our own what is `PASSED`, or with `inherit` all but `OURS`. On
    Windows, where names count without case, they are in capitals."""
    passed = {
        name: value
        for name, value in environment.items()
        # bash exports functions as variables that begin with "()"; a shell would run them
        if (not name.startswith(OURS) if inherit else name in PASSED and not value.startswith("()"))
    }
    return passed | {
        (name.upper() if sys.platform == "win32" else name): value for name, value in (given or {}).items()
    }
