"""An OAuth proxy for issuers at which clients cannot register, such as GitHub, Google and Entra.

from dragoman.auth.proxy import GITHUB, GOOGLE, Proxy, Upstream
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...doors import door

if TYPE_CHECKING:
    from .proxy import Proxy
    from .upstream import GITHUB, GOOGLE, Upstream
else:
    __getattr__, __dir__ = door(__name__, {"proxy": "Proxy", "upstream": "GITHUB GOOGLE Upstream"})
    del TYPE_CHECKING, annotations, door

__all__ = ["GITHUB", "GOOGLE", "Proxy", "Upstream"]
