"""Real programs on real projects: what apply leaves must be what the bare command leaves, but for times."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from conftest import Listing, Place, listing
from mudroom.core.settings import Settings


def compare(place: Place, script: str, *, network: bool = False, ignore: tuple[str, ...] = ()) -> None:
    """Run ``script`` on a copy without mudroom, and staged and applied on the project; the trees must be the same."""
    bare = place.root / "bare" / "project"
    bare.parent.mkdir()
    subprocess.run(["cp", "-a", str(place.project), str(bare)], check=True)
    environment = {**os.environ, "HOME": str(place.home), "LC_ALL": "C", "PWD": str(bare)}
    subprocess.run(["sh", "-c", script], cwd=bare, env=environment, check=True, capture_output=True, timeout=300)
    extra = tuple(os.fsencode(name) for name in os.environ if name.lower().startswith(("npm_config", "pip_")))
    settings = Settings(network="open" if network else "none", environment=extra)
    session, result = place.sh(script, settings)
    assert result.exit_code == 0, result.stderr
    landed = session.changes.apply(result.fork, git=True)
    assert landed.conflicts == ()
    named = [path for path in landed.withheld if path.rpartition(b"/")[2] != b"hooks"]
    if named:
        session.changes.apply(result.fork, named)
    assert _without(listing(place.project), ignore) == _without(listing(bare), ignore)
    session.changes.undo()


def _without(tree: Listing, ignore: tuple[str, ...]) -> Listing:
    return {name: entry for name, entry in tree.items() if not any(part in name for part in ignore)}


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


def source_tree(place: Place) -> None:
    for number in range(40):
        place.write(f"src/part{number % 5}/module{number}.py", f"def  f{number}( x ):\n    return x+{number}\n")
    place.write("README", "Read me.\n")
    place.write("run.sh", "#!/bin/sh\necho run\n", 0o755)
    os.symlink("README", place.project / "link")


@pytest.mark.deep
@needs("make")
@needs("gcc")
def test_a_c_build(place: Place) -> None:
    place.write(
        "main.c", '#include <stdio.h>\nint twice(int);\nint main(void) { printf("%d\\n", twice(21)); return 0; }\n'
    )
    place.write("twice.c", "int twice(int x) { return 2 * x; }\n")
    place.write(
        "Makefile", "main: main.o twice.o\n\t$(CC) -o $@ $^\n%.o: %.c\n\t$(CC) -c -o $@ $<\nclean:\n\trm -f *.o main\n"
    )
    compare(place, "make -s && ./main && rm twice.o && make -s")


def test_a_formatter_over_a_tree(place: Place) -> None:
    source_tree(place)
    compare(place, f"{sys.executable} -m ruff format --no-cache -q src")


def test_sed_over_many_files(place: Place) -> None:
    source_tree(place)
    compare(place, "grep -rl return src | xargs sed -i 's/return/yield/; $ a # end'; chmod -x run.sh; ln -sfn src link")


def test_rm_rf(place: Place) -> None:
    source_tree(place)
    place.write(".hidden/file", "x")
    compare(place, "rm -rf ./* .hidden")


def test_mv_cp_tar(place: Place) -> None:
    source_tree(place)
    compare(
        place,
        "mv src lib; cp -a lib/part1 copy; tar cf all.tar --mtime=@0 --sort=name lib; rm -r lib/part2; mkdir x;"
        " tar xf all.tar -C x",
    )


@pytest.mark.slow
def test_a_virtual_environment_inside(place: Place) -> None:
    """Shebangs and pyvenv.cfg hold absolute paths, so these are compared by running, not byte by byte."""
    session, result = place.sh(f"{sys._base_executable} -m venv --without-pip .venv")  # type: ignore[attr-defined]
    assert result.exit_code == 0, result.stderr
    assert not session.changes.apply(result.fork).conflicts
    script = "import sys; print(sys.prefix)"
    out = subprocess.run([place.project / ".venv/bin/python", "-c", script], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == str(place.project / ".venv")


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.network
def test_pip_install_into_a_virtual_environment(place: Place) -> None:
    pip = tuple(os.fsencode(name) for name in os.environ if name.startswith("PIP_"))
    session = place.session(Settings(network="open", environment=pip))
    script = f"{sys._base_executable} -m venv .venv && .venv/bin/pip -q install six"  # type: ignore[attr-defined]
    result = session.run([b"sh", b"-c", os.fsencode(script)])
    assert result.exit_code == 0, result.stderr
    assert not session.changes.apply(result.fork).conflicts
    subprocess.run([place.project / ".venv/bin/python", "-c", "import six"], check=True)
    session.changes.undo()
    assert os.listdir(place.project) == []


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.network
@needs("npm")
def test_npm_install(place: Place) -> None:
    place.write("package.json", '{ "name": "x", "version": "1.0.0", "private": true }\n')
    install = "npm install --no-audit --no-fund --no-update-notifier is-odd@3.0.1 mkdirp@3.0.1"
    compare(place, install, network=True)
