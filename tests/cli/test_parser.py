"""Command lines as a verb's parser reads them: the words after the options are the command's own."""

from __future__ import annotations

import gettext
import os
import struct
from pathlib import Path
from typing import Any

import pytest

from mudroom.cli.main import VERBS, verb_parser
from mudroom.cli.parser import parse
from mudroom.errors import UsageError
from tiers import each


def read(line: str) -> dict[str, Any]:
    verb, *words = line.split()
    return vars(parse(verb_parser(verb), words, in_order=VERBS[verb].in_order))


@each(
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


@each(
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
    """A keeper's processes have its parsers."""
    for line in ("run --env A -- x", "run -- x"):
        read(line)["env"].append("B")
    assert read("run -- x")["env"] == []


def test_help_without_rare_options_leaves_them_in_the_parser() -> None:
    parser = verb_parser("run")
    for words, shown in (("--all", True), ("", False), ("--all", True)):
        parser.words = [words]
        assert ("--memory" in parser.format_help()) == shown
        assert ("more options: mudroom run --help --all" in parser.format_help()) != shown


def test_a_catalogue_for_argparse_translates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its errors are explained by their English texts."""
    pairs = {"": "Content-Type: text/plain; charset=UTF-8\n", "unrecognized arguments: %s": "unbekannt: %s"}
    texts = [text.encode() + b"\0" for pair in zip(*pairs.items(), strict=True) for text in pair]
    at = [28 + 16 * len(pairs) + sum(map(len, texts[:number])) for number in range(len(texts))]
    table = [word for text, place in zip(texts, at, strict=True) for word in (len(text) - 1, place)]
    head = (0x950412DE, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, 0)
    place = tmp_path / "xx" / "LC_MESSAGES" / "messages.mo"
    place.parent.mkdir(parents=True)
    place.write_bytes(struct.pack(f"<7I{len(table)}I", *head, *table) + b"".join(texts))
    monkeypatch.setenv("LANGUAGE", "xx")
    before = gettext.bindtextdomain("messages")
    gettext.bindtextdomain("messages", os.fspath(tmp_path))
    try:
        assert gettext.gettext("unrecognized arguments: %s") == "unbekannt: %s"
        with pytest.raises(UsageError, match="run has no option --nope"):
            read("run --nope -- true")
    finally:
        gettext.bindtextdomain("messages", before)
