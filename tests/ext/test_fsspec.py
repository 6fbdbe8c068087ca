"""fsspec's own suite over a write buffer and over a real directory, and what it does not ask about."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import fsspec.tests.abstract as abstract  # type: ignore[import-untyped]
import pytest

from mudroom.ext.fsspec.filesystem import MudroomFileSystem
from mudroom.stage.beneath import open_root
from mudroom.stage.buffer.buffer import Buffer
from mudroom.stage.buffer.files import Files, Tree
from mudroom.stage.source import OpenSource
from mudroom.stage.views.real_directory import PlainTree

ROOT = Path(__file__).parents[2]


class Fork:
    """What a fork is to the file system."""

    def __init__(self, tree: Tree) -> None:
        self.fs = Files(lambda: tree)


@pytest.fixture(params=["buffer", "buffer that spills", "directory"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tree]:
    base, spill = tmp_path / "base", os.fsencode(tmp_path / "spill")
    base.mkdir()
    if request.param == "directory":
        root = open_root(os.fsencode(base))
        yield PlainTree(root)
        os.close(root)
        return
    total = 1 << 20 if request.param == "buffer" else 4
    with OpenSource(os.fsencode(base)) as below:
        yield Buffer(below, keep=lambda _path: None, spill=spill, per_file=total, total=total)


def file_system(tree: Tree) -> MudroomFileSystem:
    found = fsspec.filesystem("mudroom", fork=Fork(tree))
    assert isinstance(found, MudroomFileSystem)
    return found


@pytest.fixture
def fs(tree: Tree) -> MudroomFileSystem:
    return file_system(tree)


@pytest.fixture(scope="module", autouse=True)
def registered() -> None:
    """As the entry point does it where mudroom is installed; whether it is there, is tested below."""
    fsspec.register_implementation("mudroom", MudroomFileSystem, clobber=True)


class Fixtures(abstract.AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture
    def fs(self, tree: Tree) -> MudroomFileSystem:
        return file_system(tree)

    @pytest.fixture
    def fs_path(self) -> str:
        return "/work"

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return lambda *parts: "/".join(parts)


class TestCopy(abstract.AbstractCopyTests, Fixtures):  # type: ignore[misc]
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):  # type: ignore[misc]
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):  # type: ignore[misc]
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):  # type: ignore[misc]
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):  # type: ignore[misc]
    pass


def test_every_abstract_suite_is_run() -> None:
    suites = {value for name, value in vars(abstract).items() if name.startswith("Abstract") and name.endswith("Tests")}
    assert suites == {
        base for suite in (TestCopy, TestGet, TestPut, TestPipe, TestOpen) for base in suite.__bases__[:1]
    }


def test_reading_and_writing_in_every_mode(fs: MudroomFileSystem) -> None:
    with fs.open("mudroom://d/text", "w", encoding="utf-16", newline="\r\n") as stream:
        stream.write("ä\n")
    assert fs.cat("/d/text").decode("utf-16") == "ä\r\n"
    with fs.open("d/f", "wb") as stream:
        stream.write(b"0123456789")
    with fs.open("d/f", "ab") as stream:
        stream.write(b"ab")
    with fs.open("d/f", "r+b") as stream:
        stream.seek(2)
        stream.write(b"XY")
    assert fs.cat_file("d/f") == b"01XY456789ab"
    assert fs.cat_file("d/f", 2, 4) == b"XY"
    assert fs.cat_file("d/f", -2) == fs.tail("d/f", 2) == b"ab"
    assert fs.cat_file("d/f", 5, 2) == b""
    assert fs.read_block("d/f", 4, 3) == b"456"
    for mode, error in (("r+b", FileNotFoundError), ("rb", FileNotFoundError), ("qb", ValueError)):
        with pytest.raises(error):
            fs.open("none", mode)
    assert fs.ls("", detail=False) == ["/d"] and fs.find("") == ["/d/f", "/d/text"]


@pytest.mark.parametrize("mode", ["w", "wb"])
def test_a_block_left_with_an_exception_writes_nothing(fs: MudroomFileSystem, mode: str) -> None:
    with pytest.raises(KeyError), fs.open("f", mode) as stream:
        stream.write("x" if mode == "w" else b"x")
        raise KeyError
    assert not fs.exists("f") and fs.ls("") == []


def test_transactions(fs: MudroomFileSystem) -> None:
    with fs.transaction:
        with fs.open("f", "wb") as stream:
            stream.write(b"in a transaction")
        assert not fs.exists("f")
    assert fs.cat("f") == b"in a transaction"
    with pytest.raises(KeyError), fs.transaction:
        with fs.open("f", "wb") as stream:
            stream.write(b"called off")
        raise KeyError
    assert fs.cat("f") == b"in a transaction" and fs.ls("", detail=False) == ["/f"]


def test_moving_is_renaming(fs: MudroomFileSystem, tree: Tree) -> None:
    fs.pipe({"d/a": b"a", "d/b": b"b", "e/c": b"c"})
    before = tree.look(b"d/a")
    fs.mv("d", "new/place", recursive=True)
    fs.mv("new/place/a", "a")
    after = tree.look(b"a")
    assert before and after and before.inode == after.inode
    fs.mv("a", "e")  # into a directory
    assert fs.find("") == ["/e/a", "/e/c", "/new/place/b"]
    with pytest.raises(FileNotFoundError):
        fs.mv("none", "other")


def test_what_is_there(fs: MudroomFileSystem, tree: Tree) -> None:
    fs.makedirs("d/e")
    fs.makedirs("d/e", exist_ok=True)
    fs.makedirs("", exist_ok=True)
    for path in ("d/e", ""):
        with pytest.raises(FileExistsError):
            fs.mkdir(path)
    with pytest.raises(FileNotFoundError):
        fs.mkdir("none/x", create_parents=False)
    fs.touch("d/f")
    tree.symlink(b"d/link", b"../outside")
    tree.utime(b"d/f", 1_000_000_007_000_000_000)
    info = fs.info("d/link")
    assert (info["type"], info["destination"], info["islink"]) == ("link", "../outside", True)
    assert fs.modified("d/f").timestamp() == 1_000_000_007
    fs.touch("d/f", truncate=False)
    assert fs.modified("d/f").timestamp() > 1_000_000_007
    assert fs.isdir("d/e") and fs.isfile("d/f") and not fs.isfile("d/link") and not fs.exists("d/../d")
    assert [name for name, *_ in fs.walk("")] == ["", "/d", "/d/e"]
    with pytest.raises(OSError, match="symbolic links"):
        fs.cat("d/link")
    fs.copy("d", "copied", recursive=True)
    copied = tree.look(b"copied/link")
    assert copied is not None and copied.target == b"../outside"
    with pytest.raises(NotADirectoryError):
        fs.rmdir("d/f")
    with pytest.raises(OSError, match="not empty"):
        fs.rmdir("d")
    fs.rm("d", recursive=True)
    fs.rm("copied", recursive=True)
    assert fs.ls("") == []


def test_what_a_local_file_system_tells_too(fs: MudroomFileSystem, tree: Tree, tmp_path: Path) -> None:
    local = fsspec.filesystem("file")
    (tmp_path / "d").mkdir(mode=0o755)
    (tmp_path / "d/f").write_bytes(b"x")
    (tmp_path / "d/link").symlink_to("f")
    fs.pipe("d/f", b"x")
    tree.symlink(b"d/link", b"f")
    for path in ("d", "d/f"):
        ours, theirs = fs.info(path), local.info(str(tmp_path / path))
        assert theirs.keys() <= ours.keys()
        assert stat.S_IFMT(ours["mode"]) == stat.S_IFMT(theirs["mode"])
        assert {key: ours[key] for key in ("type", "islink", "uid", "gid")} == {
            key: theirs[key] for key in ("type", "islink", "uid", "gid")
        }
    assert stat.S_ISLNK(fs.info("d/link")["mode"])
    assert fs.created("d/f").tzinfo is not None and fs.islink("d/link") and fs.lexists("d/link")
    for mode in ("rb", "wb", "ab", "r+b", "r", "w"):
        with fs.open("d/f", mode) as stream:
            assert stream.mode == mode and os.fspath(stream.name if "b" in mode else stream.buffer.name) == "/d/f"


def test_two_forks_are_two_file_systems(fs: MudroomFileSystem, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    root = open_root(os.fsencode(tmp_path / "other"))
    try:
        other = file_system(PlainTree(root))
        fs.pipe("f", b"x")
        assert other.ls("") == [] and other is not fs
    finally:
        os.close(root)


PROGRAM = """
import fsspec, sys
class Fork: fs = "the files"
print(type(fsspec.filesystem("mudroom", fork=Fork())).__name__)
"""


def test_it_is_found_by_its_entry_point(tmp_path: Path) -> None:
    """What an installation makes of pyproject.toml."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    info = tmp_path / "mudroom_points-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mudroom-points\nVersion: 1\n")
    lines = [f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in names.items()) for group, names in points.items()]
    (info / "entry_points.txt").write_text("".join(lines))
    environment: dict[str, Any] = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "MudroomFileSystem", done.stderr


def test_nothing_else_loads_fsspec() -> None:
    program = (
        "import sys, mudroom.cli.main, mudroom.stage.buffer.files, mudroom.stage.buffer.buffer; print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "fsspec" not in done.stdout.split() and "mudroom.ext.fsspec.filesystem" not in done.stdout.split()
