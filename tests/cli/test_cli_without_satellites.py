"""What belongs to a satellite that is absent is refused in one line, and is offered by nobody."""

from __future__ import annotations

import os
import shlex
import sys
from types import ModuleType

import pytest

from conftest import Place
from mudroom.cli.host import setup
from mudroom.cli.main import VERBS, offered_verbs, overview, run, verb_parser
from mudroom.core import registry

LINES = {
    "claude": ("mudroom claude", "agents"),
    "agent ls": ("mudroom agent", "agents"),
    "help agent": ("mudroom agent", "agents"),
    "doctor --certify": ("mudroom doctor --certify", "certify"),
    "review": ("mudroom review", "tui"),
    "serve": ("mudroom serve", "web"),
    "fleet ls": ("mudroom fleet", "fleet"),
    "completion bash": ("mudroom completion", "completion"),
    "exec --card x.json -- true": ("--card", "agents"),
    "exec --on big -- true": ("--on big", "fleet"),
    "run --on big -- true": ("--on big", "fleet"),
    "net show 8000 --fork f": ("mudroom net show", "agents"),
    "net reach x:8000 --fork f": ("mudroom net reach", "agents"),
    "net rm 8000 --fork f": ("mudroom net rm --fork", "agents"),
    "net why x.mudroom.internal": ("mudroom net why x.mudroom.internal", "agents"),
}


@pytest.fixture(autouse=True)
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """No satellite is there."""
    verb_parser.cache_clear()  # an earlier test's parser needs no module
    for module in (registry, setup):
        monkeypatch.setattr(module, "is_installed", lambda _satellite: False)


@pytest.fixture
def environ(place: Place, monkeypatch: pytest.MonkeyPatch) -> dict[bytes, bytes]:
    monkeypatch.chdir(place.project)
    variables = {"HOME": place.home, "MUDROOM_STATE": place.state, "PATH": "/usr/bin:/bin", "MUDROOM_KEEPER": "0"}
    return {os.fsencode(name): os.fsencode(str(value)) for name, value in variables.items()}


@pytest.mark.parametrize("line", LINES)
def test_it_is_refused_in_one_line(environ: dict[bytes, bytes], line: str, capfd: pytest.CaptureFixture[str]) -> None:
    what, satellite = LINES[line]
    assert run(shlex.split(line), environ) == 125
    said = [row for row in capfd.readouterr().err.splitlines() if not row.startswith("note: ")]
    hint = "install all of mudroom: pip install --force-reinstall mudroom"
    assert said == [f"mudroom: {what} is not part of this installation: it lacks mudroom/ext/{satellite} ({hint})"]


def test_it_is_not_offered() -> None:
    assert set(offered_verbs()) == {verb for verb, row in VERBS.items() if row.folder}
    for verb in set(VERBS) - set(offered_verbs()) - {"try", "agent"}:  # words of other lines, too
        assert f"mudroom {verb}" not in overview() and f"\n  {verb} " not in overview(every=True)
    assert "mudroom claude" not in overview() and "mudroom undo" in overview()


@pytest.mark.parametrize("words", [[], ["doctor", "--setup"]])
def test_the_first_look_names_nothing_that_is_absent(
    environ: dict[bytes, bytes], words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(words, {**environ, b"SHELL": b"/bin/bash"}) in (0, 1)
    said = capfd.readouterr().out
    assert "mudroom run -- " in said
    assert not [verb for verb in ("agent", "completion", "review") if f"mudroom {verb}" in said]


def test_a_word_of_another_tool_leads_to_no_absent_verb(
    environ: dict[bytes, bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["dashboard"], environ) == 125
    assert "serve" not in capfd.readouterr().err


def test_a_folder_that_holds_only_caches_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setitem(sys.modules, "mudroom.ext.there", ModuleType("mudroom.ext.there"))
    assert not registry.is_installed("there")


def test_a_row_is_found_where_its_satellite_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(registry, "ROWS", {"kind": {"name": "there.module"}})
    monkeypatch.setitem(sys.modules, "mudroom.ext.there", registry)
    monkeypatch.setitem(sys.modules, "mudroom.ext.there.module", registry)
    assert registry.part("kind", "name", "it") is registry
