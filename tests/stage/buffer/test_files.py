"""The files of a fork for an agent's tools: what comes back, what is refused, and in what words."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

import pytest

from mudroom.errors import UsageError
from mudroom.stage.beneath import open_root
from mudroom.stage.buffer.buffer import Buffer
from mudroom.stage.buffer.files import Files, SearchMatch, Tree
from mudroom.stage.source import OpenSource
from mudroom.stage.views.real_directory import PlainTree


@pytest.fixture(params=["buffer", "directory"])
def tree(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tree]:
    base = tmp_path / "base"
    (base / "src/deep").mkdir(parents=True)
    (base / "src/one.py").write_text("import os\n\nprint(os.name)\n")
    (base / "src/deep/two.py").write_text("import re\n")
    (base / "src/.hidden.py").write_text("hidden = 1\n")
    (base / "notes.txt").write_bytes(b"first\r\nsecond\r\nthird\r\n")
    (base / "binary").write_bytes(b"import\0os\n")
    (base / "latin").write_bytes(b"caf\xe9\nimport \xff\n")
    (base / "link").symlink_to("src")
    if request.param == "directory":
        root = open_root(os.fsencode(base))
        yield PlainTree(root)
        os.close(root)
    else:
        with OpenSource(os.fsencode(base)) as below:
            yield Buffer(below, keep=lambda _path: None, spill=os.fsencode(tmp_path / "spill"))


@pytest.fixture
def files(tree: Tree) -> Files:
    return Files(lambda: tree)


def test_paths_of_every_type(files: Files) -> None:
    for path in ("src/one.py", b"src/one.py", PurePosixPath("src/one.py"), "./src//one.py"):
        assert files.read(path).startswith(b"import os")
    files.write(b"na\xefve \xff\n", "x")
    (name,) = (name for name in files.list("") if name.startswith("na"))
    assert files.read(name) == b"x" and os.fsencode(name) == b"na\xefve \xff\n"


@pytest.mark.parametrize("path", ["", ".", "..", "../x", "/etc/passwd", "src/../../x", "a\0b", "x" * 256])
def test_a_path_that_is_none_is_one_line(files: Files, path: str) -> None:
    actions: list[Callable[[], object]] = [
        lambda: files.read(path),
        lambda: files.write(path, ""),
        lambda: files.edit(path, "a", "b"),
        lambda: files.append(path, ""),
        lambda: files.delete(path, recursive=True),
        lambda: files.move(path, "x"),
        lambda: files.move("binary", path),
        lambda: files.copy(path, "x"),
        lambda: files.copy("binary", path),
        lambda: files.mkdir(path),
        lambda: files.glob(path),
    ]
    if path not in ("", "."):
        actions += [lambda: files.list(path), lambda: files.look(path), lambda: files.stat(path)]
    for action in actions:
        with pytest.raises(UsageError) as caught:
            action()
        assert "\n" not in str(caught.value)
    assert files.list("").keys() == {"src", "notes.txt", "binary", "latin", "link"}


def test_writing_makes_directories_and_keeps_modes(files: Files, tree: Tree) -> None:
    files.write("new/dir/file", "ä", 0o755)
    files.write("new/dir/file", b"b")
    assert files.read("new/dir/file") == b"b" and files.stat("new/dir/file").mode == 0o755
    files.append("new/dir/file", "c\n")
    files.append("appended", "d")
    assert (files.read("new/dir/file"), files.stat("new/dir/file").mode) == (b"bc\n", 0o755)
    assert files.read("appended") == b"d"
    files.touch("touched", 1_000_000_007)
    files.touch("src/one.py", 1_000_000_007)
    assert {files.stat(name).mtime for name in ("touched", "src/one.py")} == {1_000_000_007}
    files.mkdir("m/n")
    files.mkdir("m/n", exist_ok=True)
    for path in ("m/n", "binary"):
        with pytest.raises(FileExistsError):
            files.mkdir(path, exist_ok=path == "binary")
    for path in ("binary/x", "link/x"):
        with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
            files.write(path, "")
    with pytest.raises(IsADirectoryError):
        files.write("src", "")


def test_edit(files: Files) -> None:
    files.write("script", "one two\ntwo three\n", 0o755)
    assert files.edit("script", "one two", "1 2") == 1
    assert files.edit("script", "two", "2") == 1
    assert files.read("script") == b"1 2\n2 three\n" and files.stat("script").mode == 0o755
    with pytest.raises(UsageError, match=r"^script: the old text is in it 2 times \(lines 1, 2\)"):
        files.edit("script", "2", "3")
    assert files.edit("script", "2", "two", all=True) == 2
    assert files.edit("script", "two\n", "") == 1
    assert files.read("script") == b"1 two three\n"
    for old, new, words in (("", "x", "empty"), ("1", "1", "the same"), ("none", "x", "script: the old text is not")):
        with pytest.raises(UsageError, match=words):
            files.edit("script", old, new)
    with pytest.raises(FileNotFoundError):
        files.edit("none", "a", "b")
    files.write("many", "x\n" * 9)
    with pytest.raises(UsageError, match=r"9 times \(lines 1, 2, 3, 4, 5, \.\.\.\)"):
        files.edit("many", "x", "y")


def test_edit_keeps_what_it_does_not_change(files: Files) -> None:
    assert files.edit("notes.txt", "second\nthird", "2\n2.5\r\n3") == 1
    assert files.read("notes.txt") == b"first\r\n2\r\n2.5\r\n3\r\n"
    files.edit("latin", "import", "export")
    assert files.read("latin") == b"caf\xe9\nexport \xff\n"
    files.edit("binary", b"\0", b"\1")
    files.write("mixed", b"a\r\nb\nc\n")
    files.edit("mixed", "b\nc", "B\nC")
    assert files.read("mixed") == b"a\r\nB\nC\n"
    with pytest.raises(UsageError, match="not in it"):
        files.edit("mixed", "a\nB", "x")
    files.edit("mixed", "a\r\nB", "x")
    assert files.read("mixed") == b"x\nC\n"


def test_delete_move_and_copy(files: Files) -> None:
    with pytest.raises(OSError, match="not empty"):
        files.delete("src")
    files.copy("src", "copied/src")
    files.delete("src", recursive=True)
    files.move("copied/src", "a/b/c")
    assert files.glob("**/*.py") == ["a/b/c/.hidden.py", "a/b/c/deep/two.py", "a/b/c/one.py"]
    files.delete("copied")
    files.delete("link")
    files.copy("binary", "a/b/c/one.py")
    assert files.read("a/b/c/one.py") == b"import\0os\n"
    for action in (
        lambda: files.delete("none"),
        lambda: files.delete("none", recursive=True),
        lambda: files.move("none", "made/for/nothing"),
        lambda: files.copy("none", "made/for/nothing"),
        lambda: files.stat("none/x"),
        lambda: files.list("none"),
    ):
        with pytest.raises(FileNotFoundError, match="none"):
            action()
    assert files.look("made") is None
    with pytest.raises(OSError, match="Invalid argument"):
        files.copy("a", "a/b/x")
    with pytest.raises(FileExistsError):
        files.copy("a/b", "a")
    with pytest.raises(NotADirectoryError):
        files.list("binary")


def test_a_link_is_a_link(files: Files, tree: Tree) -> None:
    files.copy("link", "other")
    assert files.stat("other").target == b"src" and files.stat("link").kind == "symlink"
    for action in (lambda: files.read("link"), lambda: files.read("link/one.py"), lambda: files.stat("link/one.py")):
        with pytest.raises(OSError, match="symbolic links"):
            action()
    with pytest.raises(NotADirectoryError):
        files.list("link")
    assert files.glob("link/*") == [] and files.look("link/one.py") is None
    assert tree.look(b"src/one.py") is not None


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*", ["binary", "latin", "link", "notes.txt", "src"]),
        ("*.txt", ["notes.txt"]),
        ("src/one.py", ["src/one.py"]),
        ("src/*", ["src/.hidden.py", "src/deep", "src/one.py"]),
        ("s[rx]c/?ne.py", ["src/one.py"]),
        ("s[!r]c/*", []),
        ("**/*.py", ["src/.hidden.py", "src/deep/two.py", "src/one.py"]),
        ("**/**/two.py", ["src/deep/two.py"]),
        ("src/**", ["src/.hidden.py", "src/deep", "src/deep/two.py", "src/one.py"]),
        ("**/deep/*", ["src/deep/two.py"]),
        ("**/deep", ["src/deep"]),
        ("none/**", []),
        ("binary/*", []),
        ("*.PY", []),
    ],
)
def test_glob(files: Files, pattern: str, found: list[str]) -> None:
    assert files.glob(pattern) == found


def test_search(files: Files) -> None:
    assert files.search(r"^import (\w+)$") == [
        SearchMatch("src/deep/two.py", 1, "import re"),
        SearchMatch("src/one.py", 1, "import os"),
    ]
    assert files.search("import", "*") == [SearchMatch("latin", 2, "import \udcff")]
    assert files.search("import", "**/*.py", limit=1) == [SearchMatch("src/deep/two.py", 1, "import re")]
    assert [found.line for found in files.search("second$|third$")] == [2, 3]
    assert files.search("nowhere") == []
    with pytest.raises(UsageError, match="not a regular expression"):
        files.search("(")


def test_the_truth_is_asked_for_at_every_call(tree: Tree, tmp_path: Path) -> None:
    """As it moves to the live mount while a command runs."""
    (tmp_path / "live").mkdir()
    root = open_root(os.fsencode(tmp_path / "live"))
    now: list[Tree] = [tree]
    files = Files(lambda: now[0])
    try:
        now[0] = PlainTree(root)
        files.write("new", "x")
        assert files.glob("**") == ["new"]
        now[0] = tree
        assert files.look("new") is None and files.look("src") is not None
    finally:
        os.close(root)


def test_in_pieces(files: Files) -> None:
    with files.create("a/b") as draft:
        draft.write(b"12")
        draft.write(b"34")
    with files.open("a/b") as stream:
        assert stream.read(3) == b"123"
    with pytest.raises(FileExistsError):
        files.create("a/b", exclusive=True)
