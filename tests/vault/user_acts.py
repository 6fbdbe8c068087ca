"""What a user does to a path of the project, and what they want to find there afterwards."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mudroom.sandbox.client.launcher_client import LauncherClient
from world import fast_place, load_modules


@pytest.fixture
def root(tmp_path: Path, client: LauncherClient) -> Iterator[Path]:
    load_modules(client)
    with fast_place(tmp_path) as place:
        yield place


class Wish(NamedTuple):
    """What the user has made of a path, and wants to find there."""

    path: Path
    content: bytes | None = None
    """Somewhere in the file; None: whatever it is."""
    gone: bool = False
    mode: int | None = None
    link: str | None = None
    anything: bool = False
    """Whatever is there: a directory in which something was done stays as a whole."""


Act = Callable[[Path, Path, bytes], list[Wish]]
"""Called with the path that the operation is about, a directory outside, and bytes to write."""


def _file_in(path: Path) -> Path:
    """The path itself, or if it is a directory a file in it."""
    if path.is_dir() and not path.is_symlink():
        inside = sorted(one for one in path.rglob("*") if one.is_file() and not one.is_symlink())
        return inside[0] if inside else path / "by-the-user"
    return path


def _can_be_written(path: Path) -> bool:
    """Not through a link, and not to a fifo, which would be waited for."""
    return not path.is_symlink() and (path.is_file() or not path.exists())


def write_in_place(path: Path, _outside: Path, token: bytes) -> list[Wish]:
    target = _file_in(path)
    if not _can_be_written(target):
        return []
    with open(target, "r+b" if target.exists() else "xb") as stream:
        stream.write(token)
        stream.truncate()
    return [Wish(target, token)]


def append(path: Path, _outside: Path, token: bytes) -> list[Wish]:
    target = _file_in(path)
    if not _can_be_written(target):
        return []
    with open(target, "ab") as stream:
        stream.write(token)
    return [Wish(target, token)]


def replace(path: Path, _outside: Path, token: bytes) -> list[Wish]:
    """As editors do."""
    target = _file_in(path)
    beside = target.with_name(".save.tmp")
    beside.write_bytes(token)
    os.rename(beside, target)
    return [Wish(target, token)]


def delete(path: Path, _outside: Path, _token: bytes) -> list[Wish]:
    target = _file_in(path)
    target.unlink()
    return [Wish(target, gone=True)]


def change_mode(path: Path, _outside: Path, _token: bytes) -> list[Wish]:
    target = _file_in(path)
    if target.is_symlink() or not target.exists():
        return []
    target.chmod(0o610)
    return [Wish(target, mode=0o610)]


def turn_into_directory(path: Path, _outside: Path, token: bytes) -> list[Wish]:
    target = _file_in(path)
    target.unlink()
    target.mkdir()
    (target / "inside").write_bytes(token)
    return [Wish(target / "inside", token)]


def turn_into_link(path: Path, outside: Path, _token: bytes) -> list[Wish]:
    """To a file outside that must not be written to."""
    target = _file_in(path)
    target.unlink()
    os.symlink(outside / "sentinel", target)
    return [Wish(target, link=str(outside / "sentinel"))]


def move_away(path: Path, _outside: Path, _token: bytes) -> list[Wish]:
    content = path.read_bytes() if path.is_file() and not path.is_symlink() else None
    away = path.with_name(path.name + "-moved-by-user")
    os.rename(path, away)
    return [Wish(path, gone=True), Wish(away, content)]


def put_a_link_for_its_directory(path: Path, outside: Path, _token: bytes) -> list[Wish]:
    """The directory it is in is moved away, and a link in its place leads outside."""
    above = path.parent
    if above.parent == outside.parent:
        return []  # it is the project itself
    away = above.with_name(above.name + "-away")
    os.rename(above, away)
    os.symlink(outside, above)
    return [Wish(above, link=str(outside))]


def add_to_directory(path: Path, _outside: Path, token: bytes) -> list[Wish]:
    if not path.is_dir() or path.is_symlink():
        return []
    (path / "by-the-user").write_bytes(token)
    return [Wish(path / "by-the-user", token)]


ACTS: tuple[Act, ...] = (
    write_in_place, append, replace, delete, change_mode, turn_into_directory, turn_into_link, move_away,
    put_a_link_for_its_directory, add_to_directory,
)  # fmt: skip


class Outside:
    """A directory beside the project with files that nobody may touch."""

    def __init__(self, root: Path) -> None:
        self.path = root / "outside"
        self.path.mkdir()
        for name in ("sentinel", "edited", "x", "a", "f"):
            (self.path / name).write_text("nobody touches this\n")
        self._before = self._look()

    def _look(self) -> list[tuple[str, int, int, int, bytes]]:
        found = []
        for path in sorted(self.path.rglob("*")):
            info = path.lstat()
            found.append((str(path), info.st_ino, info.st_mode, info.st_mtime_ns, path.read_bytes()))
        return found

    def is_untouched(self) -> bool:
        return self._look() == self._before


def unfulfilled(wishes: list[Wish]) -> list[str]:
    return [text for wish in wishes if (text := _lacks(wish))]


def _lacks(wish: Wish) -> str:
    path = wish.path
    if wish.anything:
        return ""
    if wish.gone:
        return f"{path} is there again" if os.path.lexists(path) else ""
    if not os.path.lexists(path):
        return f"{path} is gone"
    if wish.link is not None:
        return "" if path.is_symlink() and os.readlink(path) == wish.link else f"{path} is not the user's link"
    if path.is_symlink():
        return f"{path} is a link" if wish.mode is not None or wish.content is not None else ""
    if wish.mode is not None and path.stat().st_mode & 0o777 != wish.mode:
        return f"{path} has the mode {path.stat().st_mode & 0o777:o}"
    if wish.content is not None and (not path.is_file() or wish.content not in path.read_bytes()):
        return f"{path} does not hold what the user wrote"
    return ""
