"""CPython's own tests of what programs ask of an operating system, run inside by the machine's interpreter, and held to
the outcomes that they have outside, as the same user."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from shlex import quote

import pytest

import suite
from conftest import Place
from mudroom.sandbox.client.client import Client
from mudroom.session import Session
from suite import MODES, Ran

pytestmark = [pytest.mark.both_users]

PYTHON = "/usr/bin/python3"
RUNNER = Path(__file__).with_name("python_runner.py")
SMOKE = ("test_os", "test_shutil", "test_stat", "test_posix", "test_fcntl")
MODULES = (
    *SMOKE, "test_tempfile", "test_pathlib", "test_mmap", "test_select", "test_subprocess", "test_socket", "test_glob",
    "test_fileio", "test_epoll", "test_pty", "test_filecmp", "test_mailbox", "test_dbm_dumb", "test_tarfile",
    "test_resource", "test_asyncio.test_subprocess", "test_asyncio.test_unix_events", "test_asyncio.test_streams",
    "test_asyncio.test_server", "test_asyncio.test_events", "test_asyncio.test_sock_lowlevel",
)  # fmt: skip
EXPECTED = suite.table("cpython")


@pytest.fixture
def tests() -> Path:
    """The directory that the package ``test`` is in."""
    found = suite.source("cpython")
    done = subprocess.run(
        [PYTHON, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, check=False
    )
    if done.stdout.strip() != EXPECTED.version:
        pytest.skip(f"the table is of CPython {EXPECTED.version}, {PYTHON} is another")
    return found


def line(tests: Path, runner: str, modules: Sequence[str]) -> str:
    """For a shell, in a directory where the results become a file ``results``."""
    left_out = [pattern for entry in EXPECTED.left_out for pattern in entry.tests]
    words = [PYTHON, "-s", runner, "results", json.dumps(left_out), *modules]
    variables = f"PYTHONPATH={quote(str(tests))} PYTHONDONTWRITEBYTECODE=1 LC_ALL=C.UTF-8 PATH=/usr/bin:/bin"
    return f"{variables} {' '.join(map(quote, words))} >output 2>&1"


def read_results(text: str) -> Ran:
    """Return what the runner wrote. Of a test with several rows (a class that failed after it) the last one counts."""
    rows = [row.split("\t") for row in text.splitlines()]
    return Ran({row[1]: row[0] for row in rows}, {row[1]: row[3] for row in rows})


@pytest.fixture(scope="module")
def natively() -> Iterator[Callable[[Path, Sequence[str]], Ran]]:
    """Run modules outside; each selection once."""
    known: dict[tuple[str, ...], Ran] = {}

    def run(tests: Path, modules: Sequence[str]) -> Ran:
        if tuple(modules) not in known:
            with tempfile.TemporaryDirectory(prefix="mrn", dir="/tmp", ignore_cleanup_errors=True) as place:
                environment = {**os.environ, "HOME": f"{place}/home"}
                os.mkdir(environment["HOME"])
                script = line(tests, str(RUNNER), modules)
                subprocess.run(["sh", "-c", script], cwd=place, env=environment, stdin=subprocess.DEVNULL, check=True)
                known[tuple(modules)] = read_results(Path(place, "results").read_text())
        return known[tuple(modules)]

    yield run


def inside(session: Session, place: Place, tests: Path, mode: str, modules: Sequence[str]) -> Ran:
    place.write("python_runner.py", RUNNER.read_bytes())
    suite.run_in(session, place, line(tests, "python_runner.py", modules), mode)
    return read_results(suite.staged(session, "results").decode())


def compare(session: Session, place: Place, tests: Path, mode: str, there: Ran, modules: Sequence[str]) -> None:
    found = inside(session, place, tests, mode, modules)
    passed = [list(ran.outcomes.values()).count("ok") for ran in (there, found)]
    assert min(passed) > 40 * len(modules), passed
    lines = suite.surprises(there.outcomes, found, EXPECTED, mode, whole=modules == MODULES)
    assert lines == [], "\n".join(lines)


@pytest.fixture
def place(client: Client) -> Iterator[Place]:
    with suite.short_place(client) as place:
        yield place


Natively = Callable[[Path, Sequence[str]], Ran]


@pytest.mark.deep
@pytest.mark.slow
def test_files_and_processes(place: Place, tests: Path, natively: Natively) -> None:
    session = suite.open_mode(place, "overlay", tests)
    compare(session, place, tests, "overlay", natively(tests, SMOKE), SMOKE)


@pytest.mark.deep
@pytest.mark.foreign
@pytest.mark.limit(900)
@pytest.mark.parametrize("mode", MODES)
def test_all_modules(place: Place, tests: Path, natively: Natively, mode: str) -> None:
    session = suite.open_mode(place, mode, tests)
    compare(session, place, tests, mode, natively(tests, MODULES), MODULES)
