"""Fixtures: a project, and workers that end with the test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripted_origin import ScriptedOrigin, WorkerProcess, WorkerThread

from mudroom.ext.fleet.worker.stdio import machine_key

Worker = Callable[..., ScriptedOrigin]


@pytest.fixture(scope="session")
def worker_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One home for all workers in all files, which know their levels then. Each test is another origin."""
    home = tmp_path_factory.getbasetemp() / "worker-home"
    state = home / ".local/state/mudroom/worker"
    state.mkdir(parents=True, exist_ok=True)
    for made in (state, *state.parents[:2]):
        made.chmod(0o700)
    # known already: a trial at level 2 makes other users' files in this home
    (state / "levels").write_text(f"{machine_key()}\n1")
    return home


@pytest.fixture
def origin() -> str:
    return os.urandom(16).hex()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "a.txt").write_text("one\n")
    (project / "src/b.txt").write_text("two\n")
    (project / ".env").write_text("TOKEN=abc\n")
    return project


@pytest.fixture
def started() -> Iterator[list[ScriptedOrigin]]:
    """A test's workers, which end with it."""
    workers = list[ScriptedOrigin]()
    yield workers
    for worker in workers:
        worker.close()


@pytest.fixture
def start(started: list[ScriptedOrigin], worker_home: Path, origin: str) -> Worker:
    """Return a function that starts a worker in a thread."""
    umask = os.umask(0o022)
    os.umask(umask)

    def start(jobs: int = 2, name: str = origin) -> ScriptedOrigin:
        started.append(ScriptedOrigin(WorkerThread(worker_home, jobs), worker_home, name))
        return started[-1]

    return start


@pytest.fixture
def process(started: list[ScriptedOrigin], worker_home: Path, origin: str) -> Worker:
    """Return a function that starts a worker as a process."""

    def start(*options: str, name: str = origin) -> ScriptedOrigin:
        started.append(ScriptedOrigin(WorkerProcess(worker_home, *options), worker_home, name))
        return started[-1]

    return start
