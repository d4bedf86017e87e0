"""The page that browsers are shown at HTTP endpoints: documentation that can call; and the files of the console's page.
Only `serving` and the console come here, and only where a page is wanted.

The files are served as they lie here: nothing is built, and nothing is fetched from elsewhere. `index.html` loads
`app.js`, which loads its parts; `console/` is the console's page, which has those parts too; `vendor/` has the
libraries, unchanged but for what vendor.toml says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..doors import door

if TYPE_CHECKING:
    from .files import CONTENT_SECURITY_POLICY, PageFiles, WebFile, read_console_files, read_page_files
    from .page import DocsPage, kind_of
else:
    __getattr__, __dir__ = door(
        __name__,
        {
            "files": "CONTENT_SECURITY_POLICY PageFiles WebFile read_console_files read_page_files",
            "page": "DocsPage kind_of",
        },
    )
    del TYPE_CHECKING, annotations, door

__all__ = [
    "CONTENT_SECURITY_POLICY",
    "DocsPage",
    "PageFiles",
    "WebFile",
    "kind_of",
    "read_console_files",
    "read_page_files",
]
