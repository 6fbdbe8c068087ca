"""Whether loaded files are known to be unchanged, and at which cost."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from conftest import tick
from kernel_calls import counted
from mudroom.ext.keeper import code as code_module
from mudroom.ext.keeper.code import Code


@pytest.fixture
def module(tmp_path: Path) -> Iterator[Path]:
    """A file that counts as loaded, through a link."""
    (tmp_path / "beside.py").write_text("")
    (tmp_path / "real").mkdir()
    (tmp_path / "linked").mkdir()
    path = tmp_path / "real/module.py"
    path.write_text("x = 1")
    (tmp_path / "linked/module.py").symlink_to(path)
    tick()
    loaded = types.ModuleType("loaded_for_a_test")
    loaded.__file__ = str(tmp_path / "linked/module.py")
    sys.modules["loaded_for_a_test"] = loaded
    yield path
    del sys.modules["loaded_for_a_test"]


def noted() -> Code:
    code = Code(1 << 62)
    assert code.note()
    return code


def test_an_unchanged_directory_is_one_look(module: Path) -> None:
    """There are several hundred files, in a fifth as many directories."""
    code = noted()
    with counted() as calls:
        assert code.is_current()
    files = len({getattr(module, "__file__", None) for module in sys.modules.values()})
    assert calls["stat"] < files / 2
    with counted() as calls:
        assert code.looks_current()
    assert calls["stat"] > files / 2


def replaced(path: Path) -> None:
    path.with_name("new").write_text("x = 2")
    path.with_name("new").rename(path)


def link(path: Path) -> None:
    """The link leads to another file."""
    linked = path.parents[1] / "linked/module.py"
    linked.unlink()
    linked.symlink_to("../other")


def directory(path: Path) -> None:
    """The path leads to another directory, with a file of that name."""
    path.parent.rename(path.parent.with_name("before"))
    path.parent.mkdir()
    path.touch()


def appended(path: Path) -> None:
    with path.open("a") as stream:
        stream.write(" ")


CHANGES: dict[str, Callable[[Path], object]] = {
    "written": lambda path: path.write_text("x = 2"),
    "appended": appended,
    "removed": lambda path: path.unlink(),
    "replaced": replaced,
    "link": link,
    "directory": directory,
}


@pytest.fixture
def above(module: Path) -> Iterator[None]:
    """A loaded file in the directory above."""
    loaded = types.ModuleType("loaded_above")
    loaded.__file__ = str(module.parents[1] / "beside.py")
    sys.modules["loaded_above"] = loaded
    yield
    del sys.modules["loaded_above"]


@pytest.mark.usefixtures("above")
@pytest.mark.parametrize("rests", [False, True])
@pytest.mark.parametrize("change", CHANGES.values(), ids=list(CHANGES))
def test_each_change_is_seen(module: Path, change: Callable[[Path], object], rests: bool) -> None:
    code = noted()
    if rests:
        code.rest()
    assert code.is_current()
    change(module)
    assert not code.is_current()
    assert not code.note_events()
    assert not code.is_current()  # also when the events are taken


def test_a_process_that_has_rested_looks_at_few_directories(module: Path) -> None:
    code = noted()
    with counted() as calls:
        assert code.is_current()
    before = calls["stat"]
    code.rest()
    with counted() as calls:
        assert code.is_current()
    assert calls["stat"] < before / 3
    module.parent.rename(module.parent.with_name("elsewhere"))
    assert not code.is_current()


MOUNTED = """
import subprocess, sys, types
sys.path[:0] = sys.argv[1].split(":")
from mudroom.ext.keeper.code import Code
from mudroom.ext.keeper.start import own_root
for name in ("above", "above.inside"):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__file__ = f"{sys.argv[2]}/{name.replace('.', '/')}/module.py"
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
code = Code(1 << 62)
print(code.note())
code.rest()
print(code.is_current())
subprocess.run(["mount", "-t", "tmpfs", "none", f"{sys.argv[2]}/other"], check=True)
print(code.is_current())
subprocess.run(["mount", "-t", "tmpfs", "none", f"{sys.argv[2]}/above/inside"], check=True)
print(code.is_current())
"""


@pytest.mark.both_users
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount here")
def test_a_mount_over_a_directory_is_seen(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "above/inside").mkdir(parents=True)
    for place in ("above/module.py", "above/inside/module.py"):
        (tmp_path / place).write_text("")
    source = str(Path(__file__).parents[3] / "src")
    words = ["unshare", "--mount", sys.executable, "-c", MOUNTED, source, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True", "False"]


def test_an_event_that_changed_nothing(module: Path) -> None:
    code = noted()
    module.with_name("other.py").write_text("")
    with counted() as calls:
        assert code.is_current()
    looked = calls["stat"]
    assert code.note_events()
    with counted() as calls:
        assert code.is_current()
    assert calls["stat"] < looked / 2


def test_between_the_events_and_the_look(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that comes while the keeper looks at the files is in doubt."""
    code = noted()
    module.write_text("x = 2")
    seen: list[bool] = []
    look = code.looks_current

    def meanwhile() -> bool:
        seen.append(code._watch.is_quiet())
        return look()

    monkeypatch.setattr(code, "looks_current", meanwhile)
    assert not code.note_events()
    assert seen == [False]


def test_a_file_system_that_tells_nothing(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_module, "_LOCAL", frozenset())
    code = noted()
    assert code.events == -1
    assert code.is_current()
    module.write_text("x = 2")
    assert not code.is_current()
