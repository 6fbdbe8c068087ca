"""Two workers, each in its own mount and network namespace, and as its own user where root may choose: they share two
pipes with the origin, and nothing else."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Place, listing
from test_fleet_verbs import SOURCE, Fleet, fleet, tools_at

__all__ = ["fleet"]

pytestmark = [pytest.mark.both_users, pytest.mark.root]

USERS = {"a": 65533, "b": 65532}


@pytest.fixture
def homes() -> Iterator[dict[str, Path]]:
    """A home for each worker, where its user may go."""
    top = Path(tempfile.mkdtemp(prefix="mudroom-apart-", dir="/var/tmp"))
    top.chmod(0o755)
    found = {name: top / name for name in USERS}
    for name, home in found.items():
        home.mkdir()
        if _can_be_others():
            os.chown(home, USERS[name], USERS[name])
    yield found
    shutil.rmtree(top)


def _can_be_others() -> bool:
    """Return whether other users can run this checkout, and this one can become them."""
    files = [SOURCE / "mudroom/__init__.py", Path(sys.executable), Path(sys.executable).resolve()]
    above = {folder for file in files for folder in file.parents}
    return os.geteuid() == 0 and all(folder.stat().st_mode & stat.S_IXOTH for folder in above)


def worker_apart(name: str, home: Path, path: str = "") -> tuple[str, ...]:
    """Return the command for a worker in its own namespaces. ``path``: its PATH."""
    if os.geteuid() == 0:
        apart: tuple[str, ...] = ("unshare", "--mount", "--net")
        number = str(USERS[name])
        if _can_be_others():
            apart += ("--", "setpriv", "--reuid", number, "--regid", number, "--clear-groups")
    else:
        apart = ("unshare", "--user", "--map-current-user", "--mount", "--net")
    own = {"HOME": home, "MUDROOM_STATE": home / "state", "PATH": path or tools_at(home.parent), "PYTHONPATH": SOURCE}
    variables = (*(f"{variable}={value}" for variable, value in own.items()), "MUDROOM_KEEPER=0")
    inner = ("env", *variables, sys.executable, "-m", "mudroom", "worker", "--stdio")
    return (*apart, *inner)


def test_workers_apart_give_what_a_command_here_gives(fleet: Fleet, homes: dict[str, Path], place: Place) -> None:
    for name, home in homes.items():
        assert fleet("fleet", "add", name, "--jobs", "1", "--", *worker_apart(name, home))[0] == 0
    subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", ".venv"], cwd=place.project, check=True)
    tool = place.write("tool", f"#!{place.project}/.venv/bin/python\nimport sys\nprint(sys.prefix)\n", 0o755)
    before = listing(place.project)
    script = (
        f"{tool} > prefix{{i}}; echo more >> f{{i}}.txt; rm f6.txt; ln -s f1.txt link; mkdir -p d/e; echo n > d/e/n"
    )
    code, _out, err = fleet("fleet", "run", "-n", "4", "--", "sh", "-c", script)
    assert code == 0, err
    assert listing(place.project) == before
    for number in range(1, 5):
        local = script.replace("{i}", str(number))
        assert fleet("exec", "--fork", f"here{number}", "--quiet", "--", "sh", "-c", local)[0] == 0
        assert fleet("diff", f"r1-{number}")[1] == fleet("diff", f"here{number}")[1] != ""
    assert f"+{place.project}/.venv\n" in fleet("diff", "r1-1")[1]
