"""Files by the paths that a command would use, through links, and never outside of the view."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mudroom.stage.source import OpenSource
from mudroom.stage.views.lookup import reader, strays


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    project = tmp_path / "p"
    (project / "sub/deep").mkdir(parents=True)
    (project / "build.sh").write_bytes(b"build")
    (project / "sub/run").write_bytes(b"run")
    (tmp_path / "secret").write_bytes(b"secret")
    for name, target in {
        "link": "build.sh",
        "sub/up": "../build.sh",
        "absolute": str(project / "sub/run"),
        "dir": "sub/deep",
        "out": "../secret",
        "out2": str(tmp_path / "secret"),
        "loop": "loop",
        "chain": "link",
        "temporary": "/mine/x.sh",
        "far": "/mine",
        "system": "/usr/bin/env",
        "long": "n" * 256,
    }.items():
        (project / name).symlink_to(target)
    os.mkfifo(project / "fifo")
    yield project


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("build.sh", b"build"),
        ("./sub//run", b"run"),
        ("sub/../build.sh", b"build"),
        ("dir/../run", b"run"),  # as the kernel: .. of where the link leads
        ("link", b"build"),
        ("chain", b"build"),
        ("sub/up", b"build"),
        ("absolute", b"run"),
        ("../p/build.sh", b"build"),
        ("../../p/build.sh", None),
        ("out", None),
        ("out2", None),
        ("../secret", None),
        ("loop", None),
        ("fifo", None),
        ("sub", None),
        ("", None),
        ("nothing", None),
        ("build.sh/x", None),
        ("build.sh/..", None),
        ("n" * 256, None),
        ("n" * 256 + "/build.sh", None),
        ("long", None),
    ],
)
def test_paths(project: Path, path: str, content: bytes | None) -> None:
    with OpenSource(os.fsencode(project)) as source:
        assert reader(source, os.fsencode(project))(os.fsencode(project) + b"/" + path.encode(), 100) == content


def test_a_large_file_is_not_read_whole(project: Path) -> None:
    with OpenSource(os.fsencode(project)) as source:
        read = reader(source, os.fsencode(project))
        (project / "large").write_bytes(b"x" * (3 << 20))
        content = read(os.fsencode(project / "large"), 10)
        assert content is not None
        assert 10 < len(content) <= 1 << 20
        assert read(os.fsencode(project / "sub" / "run"), 3) == b"run"


@pytest.mark.parametrize(
    ("path", "leads"),
    [
        ("temporary", True),
        ("far/deep/x.sh", True),
        ("sub/../temporary", True),
        ("../../../../../../../../../mine/x.sh", True),
        ("../p/temporary", True),
        ("system", False),
        ("build.sh", False),
        ("out", False),
        ("nothing", False),
        ("loop", False),
        ("long", False),
    ],
)
def test_what_leads_to_where_commands_write(project: Path, path: str, leads: bool) -> None:
    with OpenSource(os.fsencode(project)) as source:
        found = strays(source, os.fsencode(project), lambda place: place.startswith(b"/mine"))
        assert found(os.fsencode(project) + b"/" + path.encode()) is leads


def test_the_project_by_another_path_is_not_read(project: Path) -> None:
    (project.parent / "alias").symlink_to("p")
    with OpenSource(os.fsencode(project)) as source:
        found = strays(source, os.fsencode(project), lambda _place: False)
        assert found(os.fsencode(project.parent / "alias/build.sh"))
        assert not found(os.fsencode(project.parent / "secret"))
