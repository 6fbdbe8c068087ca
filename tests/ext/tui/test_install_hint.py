"""The hint that installs what the review needs."""

from __future__ import annotations

from mudroom.ext.tui.cli.review import install_hint


def test_a_hint_is_in_the_words_of_the_tool_that_installed_mudroom() -> None:
    assert install_hint("tui", "/home/a/.local/share/pipx/venvs/mudroom") == "pipx inject mudroom 'textual>=6'"
    assert install_hint("tui", "/home/a/.local/share/uv/tools/mudroom").startswith("uv pip install --python /home/a")
    assert install_hint("tui", "/home/a/.venv") == "pip install 'textual>=6'"
