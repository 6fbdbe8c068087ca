"""A project, and workers that end with the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripted_origin import ScriptedOrigin, processes_of

Worker = Callable[..., ScriptedOrigin]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    (project / "a.txt").write_text("one\n")
    (project / "src/b.txt").write_text("two\n")
    (project / ".env").write_text("TOKEN=abc\n")
    return project


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Worker]:
    """Return a function that starts a worker. At the end none of its processes is left."""
    workers = list[ScriptedOrigin]()

    def start(*options: str, home: str = "worker-home") -> ScriptedOrigin:
        workers.append(ScriptedOrigin(tmp_path / home, *options))
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()
        assert list(processes_of(worker.process.pid)) == []
