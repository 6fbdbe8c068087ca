"""The whole text of an error with its hint: a part of a message may be right where the rest is not."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from mudroom.errors import MudroomError


def told(action: Callable[[], object]) -> str:
    """Return the text of the MudroomError that an action raises."""
    with pytest.raises(MudroomError) as raised:
        action()
    return str(raised.value)


def whole(text: str) -> str:
    """Return the pattern that matches this text alone, for ``pytest.raises``."""
    return rf"\A{re.escape(text)}\Z"
