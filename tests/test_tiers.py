"""The marks that select where a test runs: ``both_users`` where the user matters, ``root`` where it is another case."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tiers
from satellites import whole

TESTS = Path(__file__).parent
FILES = sorted(TESTS.rglob("test_*.py"))
FOLDERS = [path for path in (*TESTS.iterdir(), *TESTS.glob("ext/*")) if path.is_dir()]
ONLY_ROOT = re.compile("only root|needs root|root alone")
"""In the reason of a skip: an ordinary user has no such test."""
ASKS = {"geteuid", "getuid", "getegid", "getgid"}
SHARED = {"conftest", "browser", "clients", "tiers"}
"""Modules that many tests import. The user matters only to Chromium's own sandbox, to the directory that sshd needs,
and to the view that a test has today."""
ROOMS = {"sandbox", "stage"}
"""Folders of tests in which every test that starts a sandbox runs as both users: identities, capabilities, control
groups, owners and mounts differ for root."""
STARTS = {"place", "client"}
"""Fixtures that start a sandbox."""
SAME = {
    "test_mac_session.py": "a macOS that is played: nothing is confined",
    "test_command_line.py": "asks for one test that root skips",
    "test_buffer.py": "the owner of a new file is who made it: said by the process itself",
    "test_faults.py": "long; root's writing is the same, but for the modes of directories: test_closed_directories",
    "test_second_writer.py": "as test_faults",
    "test_writer_race.py": "as test_faults",
    "test_crash.py": "as test_faults",
    "test_power_loss.py": "as test_faults",
    "test_verb_faults.py": "as test_faults",
    "test_approval_faults.py": "asks only to name a file of its own",
    "test_git_triples.py": "what is held to git is pure; the sandbox is only where git's scripts run",
    "test_universal_pathlib.py": "as test_buffer",
    "test_suite.py": "what the foreign suites are held to, without one",
}
"""Files that ask for the user, but run once; each with its reason."""


class Facts(NamedTuple):
    """Of a file, from one walk over its tree."""

    imports: frozenset[str]
    asks: bool
    """Whether it asks who runs it. A test that only skips itself for root does not count: an ordinary user runs it."""
    only_root: bool
    """Whether a test skips itself for all users but root."""
    marks: frozenset[str]
    """Of any test in the file."""
    arguments: frozenset[str]
    annotations: frozenset[str]
    """Of arguments."""


def dotted(node: ast.expr) -> str:
    """Return a name with dots. ast.unparse would take most of the time of these tests."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@functools.cache
def facts(path: Path) -> Facts:
    imports: set[str] = set()
    marks: set[str] = set()
    arguments: set[str] = set()
    annotations: set[str] = set()
    asking: list[ast.Call] = []
    skips_root: set[int] = set()
    only_root = False
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom):
            imports.add("." * node.level + (node.module or ""))
        elif isinstance(node, ast.Import):
            imports |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Call):
            called = dotted(node.func)
            if called in {"disk.user", *(f"os.{name}" for name in ASKS)}:
                asking.append(node)
            if called.endswith(("skip", "skipif")) and ONLY_ROOT.search(ast.unparse(node)):
                only_root = True
            if called.endswith("skipif"):
                compares = [each for each in node.args if isinstance(each, ast.Compare)]
                equal = [each for each in compares if isinstance(each.ops[0], ast.Eq)]
                skips_root |= {id(inner) for compare in equal for inner in ast.walk(compare)}
        elif isinstance(node, ast.Attribute):
            if dotted(node.value) == "pytest.mark":
                marks.add(node.attr)
        elif isinstance(node, ast.FunctionDef):
            arguments |= {argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)}
        elif isinstance(node, ast.arg) and node.annotation is not None:
            annotations.add(dotted(node.annotation))
    asks = any(id(call) not in skips_root for call in asking)
    return Facts(frozenset(imports), asks, only_root, frozenset(marks), frozenset(arguments), frozenset(annotations))


def helpers(path: Path) -> Iterator[Path]:
    """Return the file and its imports from tests/, direct and indirect, without those that nearly all tests import."""
    seen: set[Path] = set()
    waiting = [path]
    while waiting:
        here = waiting.pop()
        if here in seen:
            continue
        seen.add(here)
        yield here
        for name in facts(here).imports - SHARED:
            waiting += file_of(name, (here if name.startswith(".") else path).parent)


@functools.cache
def file_of(name: str, beside: Path) -> list[Path]:
    """Return the support module of this name: beside the file, in tests/, or in a folder on pytest's path."""
    if name.startswith(("mudroom", "test_")):
        return []
    if name.startswith("."):
        above = (beside, *beside.parents)[len(name) - len(name.lstrip(".")) - 1]
        return [path for path in (above / (name.lstrip(".").replace(".", "/") + ".py"),) if path.is_file()]
    under = name.replace(".", "/") + ".py"
    return [place / under for place in (beside, TESTS, *FOLDERS) if (place / under).is_file()][:1]


def asks_who_runs_it(path: Path) -> bool:
    return facts(path).asks


def marks(path: Path) -> frozenset[str]:
    return facts(path).marks


def starts_a_sandbox(path: Path) -> bool:
    return bool(facts(path).arguments & STARTS)


def takes_an_engine(path: Path) -> bool:
    return "EngineHere" in facts(path).annotations


def room_of(path: Path) -> str:
    """Return the folder that says what a file tests: below ``ext`` that in the satellite."""
    parts = path.relative_to(TESTS).parts
    return parts[0] if parts[0] != "ext" else parts[min(2, len(parts) - 1)]


def name_of(path: Path) -> str:
    return str(path.relative_to(TESTS))


def test_what_depends_on_who_runs_it_runs_as_both_users() -> None:
    unmarked = {}
    for path in FILES:
        room = room_of(path)
        asking = [one.name for one in helpers(path) if asks_who_runs_it(one)]
        depends = bool(asking) or (room in ROOMS and starts_a_sandbox(path))
        marked = "both_users" in marks(path) or path.name in SAME
        if depends and not marked and not takes_an_engine(path):  # dev/engines runs those, as both users too
            unmarked[name_of(path)] = asking or STARTS
    assert unmarked == {}, "mark them both_users"


def test_what_only_root_can_run_runs_as_root() -> None:
    only_root = {name_of(path) for path in FILES if any(facts(one).only_root for one in helpers(path))}
    assert sorted(only_root - {name_of(path) for path in FILES if marks(path) & {"root", "deep"}}) == []
    alone = {name_of(path): never_run(path.read_text()) for path in FILES if not takes_an_engine(path)}
    assert {name: tests for name, tests in alone.items() if tests} == {}


def never_run(source: str) -> list[str]:
    """Return the tests in the quick tier that an ordinary user skips and that root does not run."""
    body = ast.parse(source).body
    given = {
        target.id: ast.unparse(node.value)
        for node in body if isinstance(node, ast.Assign) for target in node.targets if isinstance(target, ast.Name)
    }  # fmt: skip
    found = []
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            words = [given.get(word, word) for word in ("pytestmark", *map(ast.unparse, node.decorator_list))]
            text = "\n".join(word for word in words if not word.startswith("pytest.mark.parametrize"))
            if re.search("skipif.*geteuid\\(\\) != 0", text) and not re.search(r"mark\.(root|deep)\b", text):
                found.append(node.name)
    return found


SKIPPED = '@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")'


@tiers.each(
    ("source", "names"),
    [
        (f"{SKIPPED}\ndef test_a(): pass", ["test_a"]),
        (f"@pytest.mark.root\n{SKIPPED}\ndef test_a(): pass", []),
        (f"@pytest.mark.deep\n{SKIPPED}\ndef test_a(): pass\n{SKIPPED}\ndef test_b(): pass", ["test_b"]),
        (f"pytestmark = [{SKIPPED[1:]}]\ndef test_a(): pass", ["test_a"]),
        (f"pytestmark = [pytest.mark.root, {SKIPPED[1:]}]\ndef test_a(): pass", []),
        (f"mine = {SKIPPED[1:]}\n@mine\ndef test_a(): pass", ["test_a"]),
    ],
)
def test_a_test_that_nobody_runs_is_found(source: str, names: list[str]) -> None:
    assert never_run(source) == names


@whole
def test_every_exception_is_one() -> None:
    for name in SAME:
        (path,) = (path for path in FILES if path.name == name)
        assert "both_users" not in marks(path)
        room = room_of(path)
        assert any(asks_who_runs_it(one) for one in helpers(path)) or (room in ROOMS and starts_a_sandbox(path)), name


def test_what_is_pure_runs_once() -> None:
    assert [name_of(path) for path in FILES if path.parent.name == "core" and "both_users" in marks(path)] == []


@whole
def test_the_quick_tier_has_some_of_the_browser_and_not_all() -> None:
    pages = [path for path in FILES if path.parent.name == "web" and "_page" in path.name]
    quick = [path.name for path in pages if has_quick_test(path)]
    assert 5 <= len(quick) < len(pages) / 2, quick


def has_quick_test(path: Path) -> bool:
    body = ast.parse(path.read_bytes()).body
    marked = any(isinstance(node, ast.Assign) and "mark.deep" in ast.unparse(node) for node in body)
    tests = [node for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]
    return not marked and any("pytest.mark.deep" not in map(ast.unparse, test.decorator_list) for test in tests)


def test_the_quick_tier_has_half_of_the_pairs_and_every_row_and_column(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, columns = ["a", "b", "c"], [1, 2, 3, 4]
    halves = set()
    for seed in map(str, range(20)):
        monkeypatch.setattr(tiers, "SEED", seed)
        monkeypatch.setattr(tiers, "QUICK", False)
        assert len(tiers.pairs(rows, columns)) == 12
        monkeypatch.setattr(tiers, "QUICK", True)
        half = tiers.pairs(rows, columns)
        assert ({row for row, _column in half}, {column for _row, column in half}) == (set(rows), set(columns))
        halves.add(tuple(half))
    assert sorted(map(len, halves)) == [6, 6]
    assert len(set().union(*halves)) == 12


class Collected(NamedTuple):
    nodeid: str


def test_the_quick_tier_has_each_test_in_one_view(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["a.py::a", "a.py::b[x-overlay]", "a.py::b[x-copy]", "a.py::b[y-copy]", "a.py::c[copy]", "a.py::c[overlay]"]
    items: list[Any] = [Collected(name) for name in names]
    for seed in map(str, range(10)):
        monkeypatch.setattr(tiers, "SEED", seed)
        user, root = ({item.nodeid for item in tiers.in_one_view(items, is_root)} for is_root in (False, True))
        assert len(user) == len(root) == 4 and user | root == set(names)


def test_each_row_that_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def equal(one: int, other: int) -> None:
        assert one == other

    rows = [(1, 1), (1, 2), (2, 3)]
    monkeypatch.setattr(tiers, "QUICK", True)
    with pytest.raises(ExceptionGroup) as raised:
        tiers.each(("one", "other"), rows)(equal)()
    assert [error.__notes__ for error in raised.value.exceptions] == [["row: (1, 2)"], ["row: (2, 3)"]]
    tiers.each(("one", "other"), rows[:1])(equal)()
    monkeypatch.setattr(tiers, "QUICK", False)
    mark: Any = tiers.each(("one", "other"), rows)
    assert mark.args == (("one", "other"), rows)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("@pytest.mark.skipif(os.geteuid() == 0, reason='')\ndef test_a(): pass", False),
        ("@pytest.mark.skipif(os.geteuid() != 0, reason='')\ndef test_a(): pass", True),
        ("@pytest.mark.skipif(os.geteuid() != 0 or X, reason='')\ndef test_a(): pass", True),
        ("ROOT = os.getuid() == 0", True),
        ("PROGRAM = 'os.getuid()'", False),
    ],
)
def test_what_asking_is(tmp_path: Path, text: str, expected: bool) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(text)
    assert asks_who_runs_it(path) is expected


def test_a_failure_says_how_it_is_run_again(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(): assert 0\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "tiers", "-p", "no:cacheprovider", "--rootdir", "."],
        cwd=tmp_path,
        env={"PYTHONPATH": str(TESTS), "MUDROOM_SEED": "20261122", "MUDROOM_TESTS": "quick", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "tier: quick, MUDROOM_SEED=20261122" in done.stdout
    again = "MUDROOM_TESTS=quick MUDROOM_SEED=20261122 .venv/bin/python -m pytest 'test_it.py::test_it'"
    assert again in done.stdout.splitlines()
