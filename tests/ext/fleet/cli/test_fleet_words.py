"""The fleet's wrong words."""

from __future__ import annotations

import pytest

from test_usage_messages import require_told

WRONG = {
    "fleet": "fleet needs an action: add, ",
}


def test_a_wrong_word_names_the_right_one(capfd: pytest.CaptureFixture[str]) -> None:
    require_told(WRONG, capfd)
