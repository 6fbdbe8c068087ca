"""The whole text of an error with its hint, for ``pytest.raises``."""

from __future__ import annotations

import re


def whole(text: str) -> str:
    """Return the pattern that matches this text alone: a part of a message may be right where the rest is not."""
    return rf"\A{re.escape(text)}\Z"
