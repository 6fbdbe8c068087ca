"""Wrong words of the page's verb."""

from __future__ import annotations

import pytest

from test_usage_messages import require_told

WRONG = {
    "serve x": "serve takes no argument x (mudroom serve --help)",
    "serve 8080": "serve takes no argument 8080 (mudroom serve --port 8080)",
    "web": "there is no verb 'web' (did you mean mudroom serve --open?)",
}


def test_a_wrong_word_names_the_right_one(capfd: pytest.CaptureFixture[str]) -> None:
    require_told(WRONG, capfd)
