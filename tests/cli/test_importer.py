"""mudroom's own finder beside the interpreter's: the same modules, and never byte code of another source."""

from __future__ import annotations

import json
import os
import py_compile
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from house import ROOT

SOURCE = ROOT / "src" / "mudroom"

TELL = """
import json, sys, importlib
def told(name):
    module = importlib.import_module(name)
    spec = module.__spec__
    return [module.__file__, module.__cached__, module.__package__, list(getattr(module, "__path__", ())), spec.origin,
            spec.cached, spec.has_location, spec.parent, spec.loader.get_source(name) is not None,
            spec.loader.is_package(name), module.__loader__ is spec.loader, spec.loader.get_filename(name)]
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package ``mudroom`` with a module and a package of its own."""
    top = tmp_path / "mudroom"
    (top / "inner").mkdir(parents=True)
    (top / "cli").mkdir()
    for name in ("cli/importer.py", "cli/__init__.py", "__init__.py"):
        shutil.copy(SOURCE / name, top / name)
    (top / "inner" / "__init__.py").write_text("")
    (top / "inner" / "one.py").write_text("VALUE = 1\n")
    return tmp_path


def run(package: Path, program: str, *options: str) -> str:
    start = f"import sys; sys.path.insert(0, {str(package)!r}); from mudroom.cli.importer import install; install()\n"
    done = subprocess.run(
        [sys.executable, *options, "-c", start + program], capture_output=True, text=True, check=False, env=ENVIRONMENT
    )  # fmt: skip
    return done.stdout.strip() if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
VALUE = "from mudroom.inner.one import VALUE; print(VALUE)"


def change(path: Path, text: str) -> None:
    """Write a source with another time, as an editor does."""
    before = path.stat().st_mtime
    path.write_text(text)
    os.utime(path, (before + 10, before + 10))


def test_modules_have_the_attributes_that_the_interpreter_gives() -> None:
    names = ["mudroom.core", "mudroom.core.tree.path", "mudroom.cli.terminal.context", "mudroom.session.session"]
    told = []
    for start in ("", "from mudroom.cli.importer import install; install()\n"):
        program = f"{TELL}{start}print(json.dumps([told(name) for name in {names}]))"
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        told.append(json.loads(done.stdout))
    assert told[0] == told[1]


def test_a_changed_source_counts_at_once_and_is_cached(package: Path) -> None:
    one = package / "mudroom" / "inner" / "one.py"
    assert run(package, VALUE) == "1"
    change(one, "VALUE = 2\n")
    assert run(package, VALUE) == "2"
    assert len(list((one.parent / "__pycache__").glob("one.*"))) == 1
    change(one, "VALUE = 33\n")
    assert run(package, VALUE) == "33"


@pytest.mark.parametrize("damage", [b"", b"x" * 40])
def test_a_damaged_cache_is_not_used(package: Path, damage: bytes) -> None:
    assert run(package, VALUE) == "1"
    [cached] = (package / "mudroom" / "inner" / "__pycache__").glob("one.*")
    cached.write_bytes(damage)
    assert run(package, VALUE) == "1"


def test_byte_code_of_another_kind_is_left_to_the_interpreter(package: Path) -> None:
    one = package / "mudroom" / "inner" / "one.py"
    py_compile.compile(str(one), invalidation_mode=py_compile.PycInvalidationMode.CHECKED_HASH)
    one.write_text("VALUE = 4\n")
    assert run(package, VALUE) == "4"
    assert run(package, VALUE, "-O") == "4"


def test_a_module_without_source_is_not_found(package: Path) -> None:
    assert run(package, VALUE) == "1"
    (package / "mudroom" / "inner" / "one.py").unlink()
    assert run(package, VALUE) == "ModuleNotFoundError: No module named 'mudroom.inner.one'"
    assert run(package, "import mudroom.none") == "ModuleNotFoundError: No module named 'mudroom.none'"


def test_a_moved_tree_has_its_own_names_in_tracebacks(package: Path, tmp_path: Path) -> None:
    assert run(package, VALUE) == "1"
    moved = tmp_path / "moved"
    shutil.copytree(package / "mudroom", moved / "mudroom")
    code = "import mudroom.inner.one as m; print(m.__loader__.get_code(m.__name__).co_filename)"
    assert run(moved, code) == str(moved / "mudroom" / "inner" / "one.py")
