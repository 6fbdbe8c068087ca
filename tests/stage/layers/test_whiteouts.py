"""Where no device can be made, not even 0:0 (on an overlay, so in most containers), attributes mark what is gone."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from conftest import Place, listing
from mudroom.core.settings import Settings
from mudroom.stage.beneath import open_layer
from mudroom.stage.layers.layer import OPAQUE, LayerWriter, make_whiteout, read_directory
from mudroom.stage.layers.union import OneLayer, Union
from mudroom.stage.source import OpenSource

pytestmark = [pytest.mark.both_users, pytest.mark.root]


@pytest.fixture(autouse=True)
def no_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on an overlay, even if the tests run on something else."""

    def refuse(*_words: Any, **_names: Any) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "mknod", refuse)


def test_both_kinds_of_sources_understand_them(tmp_path: Path) -> None:
    for name in ("base", "layer"):
        (tmp_path / name / "d").mkdir(parents=True)
    for name in ("f", "g", "d/x", "d/empty"):
        (tmp_path / "base" / name).touch()
    layer = os.fsencode(tmp_path / "layer")
    root = open_layer(layer)
    with OpenSource(os.fsencode(tmp_path / "base")) as base:
        writer = LayerWriter(root, base)
        for path in (b"f", b"d/x"):
            writer.whiteout(path)
        writer.data(b"d/new", b"", mode=0o644)
        writer.finish()
        with Union([layer], base) as union, OneLayer(layer) as alone:
            assert set(union.names(b"")) == {b"g", b"d"} and set(union.names(b"d")) == {b"empty", b"new"}
            assert union.look(b"f") is None and union.look(b"d/x") is None
            assert alone.look(b"f") is None and alone.look(b"d/x") is None and set(alone.names(b"d")) == {b"new"}
            assert alone.look(b"d/new") is not None, "an empty file is no whiteout"
        writer.data(b"f", b"", mode=0o644)  # it is there again, and empty
        with Union([layer], base) as union, OneLayer(layer) as alone:
            assert union.look(b"f") is not None and alone.look(b"f") is not None
    os.close(root)


def test_what_is_opaque_stays_so(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    os.setxattr(tmp_path / "d", OPAQUE, b"y")
    root = open_layer(os.fsencode(tmp_path))
    opened = open_layer(os.fsencode(tmp_path / "d"))
    make_whiteout(opened, b"gone")
    found = read_directory(root, b"d")
    assert found is not None and found.opaque and not os.listdir(tmp_path / "d")
    for descriptor in (root, opened):
        os.close(descriptor)


def test_a_disk_without_attributes_leaves_no_empty_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_words: Any) -> None:
        raise OSError(errno.ENOTSUP, "no attributes")

    root = open_layer(os.fsencode(tmp_path))
    os.setxattr(root, OPAQUE, b"x")
    monkeypatch.setattr(os, "setxattr", refuse)
    with pytest.raises(OSError, match="no attributes"):
        make_whiteout(root, b"gone")
    assert os.listdir(tmp_path) == []
    os.close(root)


def test_deletions_are_sealed_forked_and_applied(place: Place) -> None:
    for name in ("f", "d/x", "d/y", "kept/z"):
        place.write(name, name + "\n")
    session, result = place.sh("rm f d/x; echo new > d/new", Settings(view="copy"))
    session.forks.checkpoint(result.fork, "one")
    session.run([b"sh", b"-c", b"rm -r kept; touch f; rm d/new"], fork=result.fork)
    session.forks.checkpoint(result.fork, "two")
    session.run([b"rm", b"f"], fork=result.fork)
    files = session.forks.files(result.fork)
    assert sorted(files.list("")) == ["d"] and list(files.list("d")) == ["y"]
    assert [change.path for change in session.changes.of(result.fork).changes] == [b"d/x", b"f", b"kept", b"kept/z"]
    session.forks.rollback(result.fork, "two")
    assert sorted(session.forks.files(result.fork).list("")) == ["d", "f"]
    session.forks.rollback(result.fork, "one")
    session.changes.apply(result.fork)
    assert sorted(listing(place.project)) == ["d", "d/new", "d/y", "kept", "kept/z"]
