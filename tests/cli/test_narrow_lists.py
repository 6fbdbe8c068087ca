"""Lists on a terminal of 40 columns, as a phone or half a window has: no line is broken in the middle of a word."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Sequence

import pytest

from conftest import Place
from mudroom.cli.terminal.fold import fold_beside, fold_row
from screen import Screen
from test_vault_verb import Cli

COLUMNS = 40
LISTS = (
    "log", "net ls", "net why pypi.org a.example", "doctor --setup", "doctor", "policy show", "vault ls", "status",
)  # fmt: skip


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("src/a", "1\n")
    return Cli(place)


def test_a_list_is_no_wider_than_the_terminal(place: Place, cli: Cli) -> None:
    assert (
        cli("exec", "--fork", "a-fork-with-a-name", "--", "sh", "-c", "echo of several words > src/a").returncode == 0
    )
    assert cli("net", "allow", "--private", "@npm", "@pypi", "github.com:22").returncode == 0
    assert cli("net", "deny", "gist.github.com").returncode == 0
    require_narrow(place, LISTS)


def require_narrow(place: Place, lists: Sequence[str]) -> None:
    """Assert that what each line prints fits a narrow terminal."""
    mudroom = f"{shlex.quote(sys.executable)} -m mudroom"
    lines = "; ".join(f"{mudroom} {verb}; echo END {number}." for number, verb in enumerate(lists))
    screen = Screen(place, "sh", "-c", lines, columns=COLUMNS)
    for number, verb in enumerate(lists):
        found = screen.expect(rf"END {number}\.")
        text = re.sub(r"\x1b\[[\d;]*[mK]", "", found.string[: found.start()].decode())
        assert text.strip(), verb
        for line in text.split("\r\n"):
            shown = line.rpartition("\r")[2]
            assert len(shown) <= COLUMNS or _is_whole(shown), (verb, shown)


def _is_whole(line: str) -> bool:
    """Return whether the line is a path or another word, which is not broken, or a command to paste."""
    words = line.split()
    return len(words) == 1 or words[0] in ("mudroom", "npm", "pipx", "uv") or (len(words) == 2 and "/" in words[1])


def test_a_row_that_fits_is_a_line_of_its_table() -> None:
    line, cells = "a        12  /some/place", ["a", "12", "/some/place"]
    assert fold_row(line, cells, 80) == line
    assert fold_row(line, cells, 16) == "a  12\n  /some/place"
    assert fold_row("x" * 90, ["a long one", "", "npm install -g it"], 10) == "a long one\n  npm\n  install\n  -g it"
    assert fold_row("x" * 90, ["a", "npm install -g it"], 10, breaks_cells=False) == "a\n  npm install -g it"


def test_colours_do_not_move_what_stands_beside_them() -> None:
    assert fold_beside("\x1b[32mok\x1b[0m  ", "one two", 8) == "\x1b[32mok\x1b[0m  one\n    two"
