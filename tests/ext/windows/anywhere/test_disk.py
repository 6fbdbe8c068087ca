"""The two modules of calls on files have the same functions, with the same parameters, read and not run."""

from __future__ import annotations

import ast
import os
import tracemalloc
from pathlib import Path

from house import ROOT
from mudroom.stage import disk
from mudroom.stage.beneath import entries, open_root
from tiers import each

STAGE = ROOT / "src" / "mudroom" / "stage"
TWIN = ROOT / "src" / "mudroom" / "ext" / "windows" / "stage"


def path_of(name: str) -> Path:
    return (TWIN if name.startswith("nt_") else STAGE) / name


def functions(name: str) -> dict[str, list[tuple[str, str | None]]]:
    """Return the public functions of a module: the parameters with their defaults."""
    found = {}
    for node in ast.parse(path_of(name).read_text()).body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            words = node.args.args
            defaults = [None] * (len(words) - len(node.args.defaults)) + [
                ast.unparse(each) for each in node.args.defaults
            ]
            found[node.name] = [(word.arg, default) for word, default in zip(words, defaults, strict=True)]
    return found


def imported(name: str) -> set[str]:
    body = ast.parse(path_of(name).read_text()).body
    return {alias.name for node in body if isinstance(node, ast.ImportFrom) for alias in node.names}


def test_both_have_the_same_functions() -> None:
    posix = functions("disk.py")
    nt = {**functions("nt_call.py"), **functions("nt_file.py")}
    nt = {name: words for name, words in nt.items() if name in imported("nt_disk.py")} | functions("nt_disk.py")
    nt = {name: words for name, words in nt.items() if name in posix or name in functions("nt_disk.py")}
    posix["fstat"] = [("descriptor", None)]  # that of os
    own = {"marks", "set_marks", "leave_layer"}  # for stage/xattr.py and vault/apply/tree.py
    assert nt.keys() - own == posix.keys()
    assert {name: words for name, words in nt.items() if name not in own} == posix


@each("name", ["O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_PATH"])
def test_both_have_the_flags(name: str) -> None:
    assert isinstance(getattr(disk, name), int)
    assert name in (TWIN / "nt_disk.py").read_text().partition(" = 1 << 24")[0]


def test_the_flags_of_windows_are_no_others() -> None:
    """Bits of the C runtime (fcntl.h of mingw-w64) end at 0x40000."""
    line = next(line for line in (TWIN / "nt_disk.py").read_text().splitlines() if line.startswith("O_DIRECTORY,"))
    shifts = [int(word) for word in line.partition(" = ")[2].replace("1 <<", "").split(",")]
    assert len(set(shifts)) == 5 and min(shifts) > 20


def test_a_listing_keeps_no_results_of_stat(tmp_path: Path) -> None:
    """They are several times as large as what is made of them: a directory may have a million names."""
    for number in range(2000):
        (tmp_path / f"{number}").touch()
    opened = open_root(os.fsencode(tmp_path))
    entries(opened)  # once, for all that is kept at the first call
    tracemalloc.start()
    try:
        found = entries(opened)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        os.close(opened)
    assert len(found) == 2000
    assert peak < 1.5 * held
