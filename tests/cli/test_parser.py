"""Command lines as a verb's parser reads them: the words after the options are the command's own."""

from __future__ import annotations

from typing import Any

import pytest

from mudroom.cli.main import VERBS, configure_shared, verb_module
from mudroom.cli.parser import parse
from mudroom.errors import UsageError


def read(line: str) -> dict[str, Any]:
    verb, *words = line.split()

    def configure(parser: Any) -> None:
        configure_shared(parser)
        verb_module(verb).configure(parser)

    return vars(parse(verb, "help", None, configure, words, in_order=VERBS[verb].in_order))


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("run", {"yes": False, "json": False, "project": None, "env": [], "command": []}),
        ("run --yes -- true", {"yes": True, "command": ["--", "true"]}),
        ("run true --yes", {"yes": False, "command": ["true", "--yes"]}),
        ("run -- --yes", {"yes": False, "command": ["--", "--yes"]}),
        ("run --json -y -- make --no", {"json": True, "yes": True, "no": False, "command": ["--", "make", "--no"]}),
        ("run --env A=1 --env=B -- x", {"env": ["A=1", "B"], "command": ["--", "x"]}),
        ("run --level 2 --timeout=5m -- x -- y", {"level": 2, "timeout": "5m", "command": ["--", "x", "--", "y"]}),
        ("exec --fork a --background -- npm test", {"fork": "a", "background": True, "command": ["--", "npm", "test"]}),
        ("status --json", {"json": True}),
        ("undo --yes", {"yes": True}),
    ],
)  # fmt: skip
def test_a_usual_line(line: str, values: dict[str, Any]) -> None:
    assert read(line).items() >= values.items()


@pytest.mark.parametrize(
    "line",
    [
        "run --he", "run --ye -- true", "run --yes --no -- true", "run --level 3 -- true", "run -yk", "run --level x",
        "run --timeout", "run --timeout -- true", "run --yes=1", "status x", "exec --ask nobody -- x", "run -y5 -- x",
    ],
)  # fmt: skip
def test_a_wrong_line_is_refused(line: str) -> None:
    """No option has a short form that a new option could take away."""
    with pytest.raises(UsageError):
        read(line)


def test_the_values_of_a_line_are_its_own() -> None:
    """A keeper reads many lines."""
    read("run --env A -- x")["env"].append("B")
    assert read("run -- x")["env"] == []
