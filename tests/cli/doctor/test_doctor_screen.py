"""``mudroom doctor`` as text: one screen, each fix once; nothing is cut by --all."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mudroom.cli.doctor.probe import ENGINE, ShellTrial, _containers
from mudroom.cli.doctor.report import everything, fixes, screen
from mudroom.cli.host import doctor
from mudroom.core import registry
from mudroom.core.confinement.protection import Finding
from mudroom.core.settings import Settings
from mudroom.errors import UsageError

LONG = (
    "limit the container, with all that runs in it (docker run --memory, --pids-limit), or run mudroom as its root " * 3
)
NAMES = [f"protection number {number}" for number in range(26)]


def plain(text: str, _style: str) -> str:
    return text


def findings(bad: int, *, same: bool = False) -> list[Finding]:
    return [
        Finding(name, "missing", "Permission denied at /sys/fs/cgroup/" + "x" * 90, LONG + ("" if same else name))
        if number < bad
        else Finding(name, "strict", "as it should be")
        for number, name in enumerate(NAMES)
    ]


@pytest.mark.parametrize("bad", range(27))
@pytest.mark.parametrize("size", [(80, 24), (200, 50), (40, 12)])
@pytest.mark.parametrize("same", [True, False])
def test_it_is_one_screen(bad: int, size: tuple[int, int], *, same: bool) -> None:
    columns, rows = size
    lines = screen(findings(bad, same=same), plain, columns, rows)
    assert len(lines) < rows, lines
    assert max(map(len, lines)) <= columns, lines
    assert lines[0].startswith(f"{26 - bad} of 26 ")
    shown = sum(line.startswith("missing") for line in lines)
    if lines[-1].endswith("--all)") and not lines[-1].startswith("(cut"):
        more = f"({bad - shown} more" if shown < bad else "(the fixes:"
        assert lines[-1].startswith(more), lines[-1]
    else:
        assert shown == bad
    if any("…" in line for line in lines):
        assert "mudroom doctor --all" in "".join(lines) or "…" in "".join(line for line in lines if "missing" in line)


def test_each_fix_is_there_once_with_what_it_gives() -> None:
    rows = [Finding("a", "strict", "f"), Finding("b", "missing", "f", "x"), Finding("c", "degraded", "f", "x")]
    assert [tuple(fix) for fix in fixes(rows)] == [("x", ("b", "c"))]
    assert screen(rows, plain) == [
        "1 of 3 protections hold here", "  a", "missing     b  f", "degraded    c  f", "fix for b, c: x",
    ]  # fmt: skip
    assert everything(rows, plain)[-1] == "fix for b, c: x"


def test_all_cuts_nothing() -> None:
    text = "\n".join(everything(findings(3), plain))
    assert "x" * 90 in text and LONG in text


def test_the_doctor_heeds_the_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And does without one that cannot be read."""
    said: list[str] = []
    terminal = SimpleNamespace(out=said.append, note=said.append, style=lambda text, *_: text)
    context: Any = SimpleNamespace(environ={}, as_json=False, terminal=terminal)
    asked: list[str] = []
    options = Namespace(table=False, all=False, setup=False, certify=False, file=None)
    monkeypatch.setattr(doctor, "places", lambda _: SimpleNamespace(state=os.fsencode(tmp_path), home=b"/"))
    monkeypatch.setattr(doctor, "project_of", lambda _: b"/p")

    def examine(*_: object, engine: str, **_more: object) -> list[Finding]:
        asked.append(engine)
        return [Finding("a sandbox", "strict", "yes")]

    monkeypatch.setattr(doctor, "examine", examine)
    monkeypatch.setattr(doctor, "settings_of", lambda *_: Settings(engine="podman"))
    assert doctor.execute(options, context) == 0

    def broken(*_: object) -> Settings:
        raise UsageError("line 1: no")

    monkeypatch.setattr(doctor, "settings_of", broken)
    assert doctor.execute(options, context) == 0
    assert asked == ["podman", "auto"]
    assert "the policy cannot be read and is ignored here: line 1: no" in said


def test_an_installation_without_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "is_installed", lambda _satellite: False)
    told = "level 2 is not part of this installation: it lacks mudroom/ext/containers"
    fix = "install all of mudroom: pip install --force-reinstall mudroom"
    rows = _containers(b"/nowhere", {}, lambda _settings, _script: ShellTrial(), "auto")
    assert rows == [Finding(ENGINE, "missing", told, fix)]
