"""Command lines that are read without argparse: the same values, for every verb; and everything else is left to it."""

from __future__ import annotations

import argparse
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.cli.main import offered_verbs, verb_module
from mudroom.cli.parser import parse
from mudroom.cli.plain_options import read_plain
from mudroom.errors import UsageError

VERBS = offered_verbs()
MODULES = {verb: verb_module(verb) for verb in VERBS}
VALUES = ("a", "5", "", "-", "--", "-5", "1G", "x=y", "never", "terminal", "gate", "0", "2", "two words", "-x y", "é")


def configure_of(verb: str) -> Any:
    def configure(parser: Any) -> None:
        parser.add_argument("--json", action="store_true")
        parser.add_argument("--project", metavar="DIR")
        MODULES[verb].configure(parser)

    return configure


def options_of(verb: str) -> list[str]:
    parser = argparse.ArgumentParser(add_help=False)
    configure_of(verb)(parser)
    return [name for action in parser._actions for name in action.option_strings]


OPTIONS = {verb: options_of(verb) for verb in VERBS}


@st.composite
def lines(draw: st.DrawFn) -> tuple[str, list[str]]:
    verb = draw(st.sampled_from(list(VERBS)))
    option = st.sampled_from(OPTIONS[verb])
    word = st.one_of(
        option,
        option,
        st.sampled_from(VALUES),
        st.builds("{}={}".format, option, st.sampled_from(VALUES)),
        option.map(lambda name: name[:-1]),
        st.sampled_from(("-h", "--help", "-yk")),
    )
    return verb, draw(st.lists(word, max_size=6))


def by_argparse(verb: str, words: list[str]) -> dict[str, Any] | None:
    try:
        return vars(parse(verb, "help", None, configure_of(verb), words, in_order=VERBS[verb].in_order))
    except (UsageError, SystemExit):
        return None


@given(lines())
def test_both_read_the_same(line: tuple[str, list[str]]) -> None:
    verb, words = line
    plain = read_plain(verb, configure_of(verb), words)
    if plain is not None:
        assert vars(plain) == by_argparse(verb, words)


@pytest.mark.parametrize(
    "line",
    [
        "run --yes -- true",
        "run --json --yes -- make -j",
        "run --level 2 --timeout=5m --env A=1 --env B --show x -y -- sh -c true",
        "run -- --yes",
        "run",
        "exec --json --fork a -- npm test",
        "exec --agent coder --ask later --background -- x",
        "status",
        "status --json",
        "ls --json",
        "undo",
        "apply --yes",
        "--json",
    ],
)
def test_usual_lines_are_plain(line: str) -> None:
    verb, *words = line.split() if not line.startswith("-") else ("status", line)
    plain = read_plain(verb, configure_of(verb), words)
    assert plain is not None
    assert vars(plain) == by_argparse(verb, words)


@pytest.mark.parametrize(
    "line",
    [
        "run --he", "run --help", "run --ye -- true", "run --yes --no -- true", "run --level 3 -- true", "run -yk",
        "run --level x", "run --timeout", "run --timeout -- true", "run --yes=1", "status x", "exec --ask nobody -- x",
        "policy show", "resolve x", "run -y5 -- true", "run a --n", "run a b --e=1", "run --tmp=-- -- true",
    ],
)  # fmt: skip
def test_other_lines_are_left_to_argparse(line: str) -> None:
    verb, *words = line.split()
    assert read_plain(verb, configure_of(verb), words) is None


def test_defaults_are_not_shared_between_lines() -> None:
    """The options of a verb are kept for the next line of a process."""
    lines = (["--env", "A", "--", "x"], ["--env", "B", "--", "x"], ["--", "x"], ["--", "x"])
    first, second, third, fourth = (read_plain("run", configure_of("run"), line) for line in lines)
    assert first is not None and second is not None and third is not None and fourth is not None
    third.env.append("C")
    assert (first.env, second.env, third.env, fourth.env) == (["A"], ["B"], ["C"], [])


def test_a_plain_line_does_not_import_argparse() -> None:
    program = (
        "import sys; from mudroom.cli.main import _module; from mudroom.cli.plain_options import read_plain;"
        "m = _module('mudroom.cli.command.run'); assert read_plain('run', m.configure, ['--yes', '--', 'true']);"
        "assert 'argparse' not in sys.modules and 'gettext' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
