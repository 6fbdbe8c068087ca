"""Messages of completion, each brought about by what a user would type."""

from __future__ import annotations

from test_messages_by_doing import Told, all_told

__all__ = ["all_told"]  # a fixture

LINES = {
    "completion tcsh": "there is no completion for 'tcsh' (mudroom completion bash, zsh, fish or man)",
}


def test_wrong_lines(all_told: Told) -> None:
    all_told(LINES)
