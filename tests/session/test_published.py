"""Published holes of other sandboxes, tried here: every row of published.toml (docs/evidence/KNOWN.md)."""

from __future__ import annotations

import ast
import functools
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conformance import published
from conformance.bypasses import groups as _of_bypasses  # noqa: F401  importing it fills the table
from conformance.bypasses.attempt import TABLE as BYPASSES
from conformance.escapes import groups as _of_escapes  # noqa: F401
from conformance.escapes.attempt import TABLE as ESCAPES
from conftest import Place
from mudroom.core.command.policy import CommandPolicy, CommandRule
from mudroom.core.command.program.classification import classify_line
from mudroom.core.command.verdict import CLASSES
from mudroom.core.settings import Settings
from mudroom.core.tree.flag import flags_of, is_protected

HOLES = published.holes()
ROOT = Path(__file__).resolve().parents[2]
SAFE = ("'-I", "'-P", "*_o")
"""Beginnings of the first option; the last is ``*_options()`` of the keeper, which has -P."""


@functools.cache
def functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def test_the_document_is_that_of_the_table() -> None:
    text = published.DOCUMENT.read_text(encoding="utf-8")
    assert text == published.document(), "python -m tests.conformance.published"


def test_each_row_says_what_holds_it_and_is_tried() -> None:
    assert len(HOLES) > 45
    assert len({hole.id for hole in HOLES}) == len(HOLES)
    assert {hole.held for hole in HOLES} <= {"yes", "partly", "no", "other"}
    assert [hole.id for hole in HOLES if hole.held in ("yes", "partly") and not hole.evidence] == []
    assert [hole.id for hole in HOLES if not (hole.mechanism.endswith(".") and hole.by)] == []
    assert [hole.id for hole in HOLES if not "2025-06" < hole.month < "2026-12"] == []


def test_each_attempt_and_test_that_a_row_names_exists() -> None:
    missing = [(hole.id, name) for hole in HOLES for name in hole.escapes if name not in ESCAPES]
    missing += [(hole.id, name) for hole in HOLES for name in hole.bypasses if name not in BYPASSES]
    for hole in HOLES:
        for name in hole.tests:
            path, _, function = name.partition("::")
            satellite = re.match("tests/ext/[^/]+", path)
            if satellite and not (published.ROOT / satellite[0]).exists():
                continue  # it is not part of this checkout
            if not (published.ROOT / path).is_file() or function not in functions(published.ROOT / path):
                missing.append((hole.id, name))
    assert missing == []


def test_no_line_of_a_row_is_read_only() -> None:
    wrong = []
    for hole in HOLES:
        for row in hole.lines:
            head, colon, rest = row.partition(": ")
            expected, line = (head, rest) if colon and head in CLASSES else ("", row)
            classes = set(classify_line(line.encode(), b"/p", b"/p").classes)
            if not classes - {"read_only"} or (expected and not classes & {expected, "unknown"}):
                wrong.append((hole.id, line, sorted(classes)))
    assert wrong == []


def test_each_path_of_a_row_is_flagged() -> None:
    paths = [path.encode() for hole in HOLES for path in hole.flagged]
    assert [path for path in paths if not flags_of(path) and not is_protected(path)] == []


@pytest.mark.parametrize("parts", [1, 49, 50, 51, 1_000])
def test_a_rule_holds_in_the_last_of_many_parts(place: Place, parts: int) -> None:
    """A deny rule ends a line with a hundred parts as it ends one with two."""
    place.write("src/a", "x")
    rules = (CommandRule(((b"curl",),), "deny"),)
    line = " && ".join(["true"] * parts + ["curl https://x.example"])
    session = place.session(Settings(commands=CommandPolicy((), rules)), agent="agent")
    result = session.run([b"sh", b"-c", line.encode()])
    assert result.verdict.action == "deny"
    assert result.exit_code == 126


def test_a_masked_file_is_empty_by_each_of_its_names(place: Place) -> None:
    place.write(".env", "TOKEN=of-the-user\n")
    (place.project / "link").symlink_to(".env")
    (place.project / "far").symlink_to(place.project / ".env")
    (place.project / "d").mkdir()
    (place.project / "d/up").symlink_to("../link")
    script = "cat .env link far d/up ./d/../.env; ln .env made; cat made; cat /proc/self/cwd/.env; cp -rL . /tmp/c; "
    script += "cat /tmp/c/.env /tmp/c/link"
    _, result = place.sh(script)
    assert b"of-the-user" not in result.stdout + result.stderr


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_settings_of_a_repository_run_nothing_on_the_host(place: Place) -> None:
    """Every setting of git that names a program, and hooks: a whole day of mudroom runs none of them outside."""
    ran = place.root / "ran"
    evil = place.write("evil", f"#!/bin/sh\necho $0 $@ >> {ran}\n", 0o755)
    place.write("a.txt", "one\n")
    git = ["git", "-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    for words in (["init", "-q"], ["add", "a.txt"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], cwd=place.project, check=True)
    settings = f"""[core]
\tfsmonitor = {evil}
\tpager = {evil}
\teditor = {evil}
\tsshCommand = {evil}
\tgitProxy = {evil}
\thooksPath = {place.project}/hooks
\talternateRefsCommand = {evil}
[filter "x"]
\tclean = {evil}
\tsmudge = {evil}
\tprocess = {evil}
\trequired = true
[diff]
\texternal = {evil}
[diff "x"]
\ttextconv = {evil}
\tcommand = {evil}
[merge "x"]
\tdriver = {evil}
[credential]
\thelper = {evil}
[gpg]
\tprogram = {evil}
[commit]
\tgpgSign = true
[uploadpack]
\tpackObjectsHook = {evil}
[alias]
\tstatus = !{evil}
"""
    with (place.project / ".git/config").open("a") as stream:
        stream.write(settings)
    place.write(".gitattributes", "* filter=x diff=x merge=x\n")
    for hook in ("post-checkout", "pre-commit", "post-index-change", "reference-transaction", "fsmonitor-watchman"):
        place.write(f"hooks/{hook}", f"#!/bin/sh\nexec {evil}\n", 0o755)
        place.write(f".git/hooks/{hook}", f"#!/bin/sh\nexec {evil}\n", 0o755)
    ran.unlink(missing_ok=True)
    session = place.session(agent="agent")
    session.run([b"sh", b"-c", b"echo two > a.txt; echo new > b.txt"], fork="f")
    place.write("a.txt", "one\nmeanwhile\n")
    session.changes.review("f")
    session.changes.apply("f")
    session.changes.undo()
    assert not ran.exists(), ran.read_text()
    subprocess.run(["git", "status"], cwd=place.project, capture_output=True, check=False)
    assert ran.exists(), "the settings are such that git runs the program"


def test_no_python_that_mudroom_starts_has_the_current_directory_among_its_modules() -> None:
    """That is the project. -I or -P leaves it out (python(1)). The room ``certify`` works on no project."""
    bare = []
    for path in sorted((ROOT / "src/mudroom").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "sys.executable" not in text or "certify" in path.parts:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.List | ast.Tuple):
                words = [ast.unparse(element) for element in node.elts]
                if words[:1] == ["sys.executable"] and {"'-m'", "'-c'"} & set(words) and words[1][:3] not in SAFE:
                    bare.append(f"{path}:{node.lineno}: {', '.join(words)}")
    assert bare == []


def test_a_program_of_the_project_is_not_run_on_the_host(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that mudroom itself may look for, in the project and first on a PATH with relative entries."""
    ran = place.root / "ran"
    names = "git bwrap newuidmap newgidmap fuse-overlayfs fusermount3 mount systemd-run python3 sh rg diff less docker"
    for name in names.split():
        place.write(name, f"#!/bin/sh\necho {name} >> {ran}\n", 0o755)
    monkeypatch.chdir(place.project)
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")
    session = place.session()
    result = session.run([b"true"], fork="f")
    assert result.exit_code == 0
    session.changes.review("f")
    assert not ran.exists(), ran.read_text()
    subprocess.run(["git"], check=True)
    assert ran.read_text() == "git\n", "by this PATH the project's program is found"
