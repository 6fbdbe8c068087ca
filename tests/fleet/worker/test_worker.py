"""``mudroom worker --stdio``, with an origin by hand."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from scripted_origin import ScriptedOrigin, row_of

from mudroom.fleet.wire import message

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
    workers = []

    def start(*options: str, home: str = "worker-home", **more: object) -> ScriptedOrigin:
        workers.append(ScriptedOrigin(tmp_path / home, *options, **more))  # type: ignore[arg-type]
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


def test_an_errand_from_hello_to_kept(start: Worker, project: Path) -> None:
    worker = start()
    hello = worker.hello()
    assert hello.protocol == message.PROTOCOL and 1 in hello.levels and hello.held == ()
    base = worker.ship(project)
    stream = worker.sh(
        base, "pwd; cat .env; cat src/b.txt; echo new > new; echo $MUDROOM_ATTEMPT $MARK >&2; exit 3",
        environ=((b"MARK", b"m"),), number=7,
    )  # fmt: skip
    outcome = worker.outcome(stream)
    assert worker.printed(stream) == f"{project}\ntwo\n".encode()
    assert worker.printed(stream, 2) == b"7 m\n"
    assert (outcome.state, outcome.exit_code, outcome.signal, outcome.added) == ("ended", 3, 0, 1)
    archive = worker.fetch(outcome)
    assert len(archive) == outcome.archive and hashlib.blake2b(archive, digest_size=32).digest() == outcome.digest
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(archive))) as tar:
        assert any(name.endswith("tree/new") for name in tar.getnames())
        assert b"TOKEN" not in gzip.decompress(archive)
    assert worker.fetch(outcome, 100) == archive[100:]
    assert "run" in [row_of(frame)["kind"] for frame in worker.heard if frame.kind == message.EVENT]
    worker.send(message.KEPT, message.Kept(outcome.errand, outcome.attempt))
    worker.send(message.BYE, message.Bye("done"))
    assert worker.wait() == 0 and worker.errors() == ""
    assert start().hello().held == ()
