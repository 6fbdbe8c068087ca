"""A directory with a write buffer on it, and whatever that is to be flushed to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from inner_path import inner
from mudroom.stage.beneath import open_layer, open_root
from mudroom.stage.buffer.buffer import Buffer
from mudroom.stage.layers.layer import LayerWriter
from mudroom.stage.source import OpenSource, Source, read_all, walk

MB = 1 << 20
Shape = dict[bytes, tuple[str, int, bytes]]


def shape(tree: Source) -> Shape:
    """Every path with its kind, mode, and content or link target."""
    found: Shape = {}
    for path, entry in walk(tree):
        held = read_all(tree, path, 64 * MB) if entry.kind == "file" else entry.target
        assert held is not None
        found[path] = (entry.kind, entry.mode, held)
    return found


def fill(base: Path) -> None:
    (base / "d/e").mkdir(parents=True)
    (base / "full/of/files").mkdir(parents=True)
    (base / "empty").mkdir()
    (base / "a").write_bytes(b"a of the base")
    (base / "d/f").write_bytes(b"f of the base")
    (base / "d/e/g").write_bytes(b"g" * 100)
    (base / "full/of/files/one").write_bytes(b"1")
    (base / "full/two").write_bytes(b"2")
    (base / "a").chmod(0o755)
    (base / "d/e").chmod(0o750)
    if sys.platform == "win32":
        return  # it has neither
    os.symlink("d", base / "link")
    os.symlink("nowhere", base / "d/dangling")
    os.mkfifo(base / "d/pipe")


class Ground:
    """A base directory with a buffer on it."""

    def __init__(self, root: Path) -> None:
        self.root, self.base, self.spill = root, root / "base", root / "spill"
        self.base.mkdir()
        self.kept: list[bytes] = []
        self._stack = ExitStack()

    def __enter__(self) -> Ground:
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    @property
    def below(self) -> Source:
        return self._stack.enter_context(OpenSource(inner(self.base)))

    def buffer(self, per_file: int = MB, total: int = 4 * MB, keep: Callable[[bytes], None] | None = None) -> Buffer:
        spill = inner(self.spill)
        return Buffer(self.below, keep=keep or self.kept.append, spill=spill, per_file=per_file, total=total)

    def layer(self, name: str = "layer") -> tuple[bytes, LayerWriter]:
        path = self.root / name
        path.mkdir()
        descriptor = open_layer(inner(path))
        self._stack.callback(os.close, descriptor)
        return inner(path), LayerWriter(descriptor, self.below)

    def opened(self, path: Path) -> int:
        descriptor = open_root(inner(path))
        self._stack.callback(os.close, descriptor)
        return descriptor

    def copy(self, name: str) -> Path:
        if sys.platform == "win32":
            shutil.copytree(self.base, self.root / name)
        else:
            subprocess.run(["cp", "-a", self.base, self.root / name], check=True)
        return self.root / name

    def spilled(self) -> list[str]:
        return os.listdir(self.spill) if self.spill.exists() else []
