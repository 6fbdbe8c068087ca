"""Hatch metadata hook: the description of the package is README without what an index cannot show.

The project has no public address yet, so a relative link or picture of README has no base outside the repository: a
link becomes its text, and a picture is left out. Links with an address of their own stay.
"""

from __future__ import annotations

import os
import re
from typing import Any

try:
    from hatchling.metadata.plugin.interface import MetadataHookInterface
except ImportError:  # the tests call `described` without the build backend
    MetadataHookInterface = object  # type: ignore[assignment,misc]

_PICTURE = re.compile(r"!\[[^\]]*\]\((?!https?://)[^)\s]*\)\n*")
_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((?!https?://|#|mailto:)[^)\s]*\)")


def described(text: str) -> str:
    """Return the description for an index. Blocks of code stay as they are."""
    parts = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    return "".join(part if part.startswith("```") else _LINK.sub(r"\1", _PICTURE.sub("", part)) for part in parts)


class ReadmeHook(MetadataHookInterface):  # type: ignore[misc]
    def update(self, metadata: dict[str, Any]) -> None:
        with open(os.path.join(self.root, "README.md"), encoding="utf-8") as stream:
            text = described(stream.read())
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
