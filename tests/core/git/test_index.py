"""git's index against real git: what is parsed is what git lists, and git reads what is written."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.git.index import (
    Index,
    IndexEntry,
    TreeItem,
    encode_index,
    is_same_staging,
    parse_index,
    with_skip_worktree,
)

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
GIT = ("git", "-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main")


def git(repository: Path, *words: str, **how: bytes) -> bytes:
    done = subprocess.run([*GIT, *words], cwd=repository, capture_output=True, check=True, **how)  # type: ignore[call-overload]
    return bytes(done.stdout)


def index_of(repository: Path) -> bytes:
    return (repository / ".git/index").read_bytes()


def listed(entries: tuple[IndexEntry, ...]) -> list[bytes]:
    """The entries as ``git ls-files -s -z`` lists them."""
    return [b"%06o %s %d\t%s" % (entry.item.mode, entry.item.id.hex().encode(), entry.stage, entry.path)
            for entry in entries]  # fmt: skip


@pytest.fixture(params=["sha1", "sha256"])
def repository(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    git(tmp_path, "init", "-q", f"--object-format={request.param}")
    for name in ("a", "dir/b", "dir/bb", "dir-c", "dir.d", "l" * 200, "ü", "z/y/x"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    (tmp_path / "dir/link").symlink_to("b")
    (tmp_path / "run").write_text("#!")
    (tmp_path / "run").chmod(0o755)
    git(tmp_path, "add", ".")
    return tmp_path


def id_length(repository: Path) -> int:
    return len(git(repository, "hash-object", "a").strip()) // 2


@needs_git
@pytest.mark.parametrize("version", [2, 3, 4])
def test_versions(repository: Path, version: int) -> None:
    git(repository, "update-index", "--index-version", str(version))
    if version > 2:
        git(repository, "update-index", "--skip-worktree", "dir/b")
        git(repository, "update-index", "--assume-unchanged", "dir-c")
        (repository / "later").touch()
        git(repository, "add", "-N", "later")
    data, length = index_of(repository), id_length(repository)
    assert data[4:8] == version.to_bytes(4, "big")
    index = parse_index(data, length)
    assert listed(index.entries) == git(repository, "ls-files", "-s", "-z").split(b"\0")[:-1]
    assert [entry.path for entry in index.entries if entry.skip_worktree] == [b"dir/b"] * (version > 2)
    assert [entry.path for entry in index.entries if entry.assume_valid] == [b"dir-c"] * (version > 2)
    assert [entry.path for entry in index.entries if entry.intent_to_add] == [b"later"] * (version > 2)
    assert index.is_plain
    assert parse_index(encode_index(index.entries, length), length) == index


@needs_git
def test_git_reads_what_is_written(repository: Path) -> None:
    git(repository, "commit", "-qm", "1")
    length = id_length(repository)
    index = parse_index(index_of(repository), length)
    marked = with_skip_worktree(index.entries, [b"dir/b", b"run", b"not-there"])
    (repository / ".git/index").write_bytes(encode_index(marked, length))
    for name in ("dir/b", "run"):
        (repository / name).write_text("")
    assert git(repository, "status", "--porcelain") == b""
    assert git(repository, "ls-files", "-t", "dir/b", "run", "a") == b"H a\nS dir/b\nS run\n"
    assert git(repository, "fsck", "--strict") == b""
    # stat data survives: a file that has changed is seen, one that has not is not read again
    (repository / "a").write_text("x")
    assert git(repository, "diff-files", "--name-only") == b"a\n"


@needs_git
def test_files_in_conflict(repository: Path) -> None:
    git(repository, "commit", "-qm", "1")
    git(repository, "switch", "-qc", "b")
    (repository / "a").write_text("b")
    git(repository, "commit", "-qam", "b")
    git(repository, "switch", "-q", "main")
    (repository / "a").write_text("m")
    git(repository, "commit", "-qam", "m")
    with pytest.raises(subprocess.CalledProcessError):
        git(repository, "merge", "b")
    length = id_length(repository)
    index = parse_index(index_of(repository), length)
    assert [(entry.path, entry.stage) for entry in index.entries[:3]] == [(b"a", 1), (b"a", 2), (b"a", 3)]
    assert not index.is_plain
    before = git(repository, "ls-files", "-s")
    (repository / ".git/index").write_bytes(encode_index(index.entries, length))
    assert git(repository, "ls-files", "-s") == before


@needs_git
def test_split_and_sparse_indexes_are_recognised(repository: Path) -> None:
    length = id_length(repository)
    git(repository, "commit", "-qm", "1")
    git(repository, "update-index", "--split-index")
    index = parse_index(index_of(repository), length)
    assert index.required == {b"link"}
    assert not index.is_plain
    git(repository, "update-index", "--no-split-index")
    git(repository, "sparse-checkout", "init", "--cone", "--sparse-index")
    index = parse_index(index_of(repository), length)
    assert index.required == {b"sdir"}
    assert [entry.path for entry in index.entries if entry.item.mode == 0o40000] == [b"dir/", b"z/"]


@needs_git
def test_optional_extensions_are_left_out(repository: Path) -> None:
    git(repository, "commit", "-qm", "1")
    git(repository, "update-index", "--untracked-cache", "--force-untracked-cache")
    git(repository, "status")
    data, length = index_of(repository), id_length(repository)
    assert b"TREE" in data
    assert b"UNTR" in data
    index = parse_index(data, length)
    assert index.is_plain
    written = encode_index(index.entries, length)
    assert b"TREE" not in written
    assert is_same_staging(data, written, length)


@needs_git
@pytest.mark.parametrize("version", [2, 4])
def test_every_truncated_index_is_refused(repository: Path, version: int) -> None:
    git(repository, "update-index", "--index-version", str(version))
    data, length = index_of(repository), id_length(repository)
    for end in range(len(data)):
        with pytest.raises(ValueError, match="the index"):
            parse_index(data[:end], length)


@needs_git
def test_every_flipped_bit_is_refused(repository: Path) -> None:
    data, length = index_of(repository), id_length(repository)
    for position in range(0, len(data) - length, 7):
        damaged = bytearray(data)
        damaged[position] ^= 0x11
        with pytest.raises(ValueError, match="the index"):
            parse_index(bytes(damaged), length)


@needs_git
def test_an_index_without_checksum(repository: Path) -> None:
    """index.skipHash of git-config(1)."""
    data, length = index_of(repository), id_length(repository)
    assert parse_index(data[:-length] + bytes(length), length) == parse_index(data, length)


@given(st.binary(max_size=400), st.sampled_from([2, 3, 4]), st.integers(0, 1 << 32 - 1), st.sampled_from([20, 32]))
def test_any_bytes_parse_or_are_refused(data: bytes, version: int, count: int, length: int) -> None:
    for number in (count, count % 4):
        whole = b"DIRC" + version.to_bytes(4, "big") + number.to_bytes(4, "big") + data + bytes(length)
        try:
            index = parse_index(whole, length)
        except ValueError as error:
            assert str(error).startswith("the index")
        else:
            assert len(index.entries) == number


# --- by itself ---

PATHS = st.lists(
    st.binary(min_size=1, max_size=12).filter(lambda name: not {0, 47} & set(name) and name not in (b".", b"..")),
    min_size=1, max_size=3,
).map(b"/".join)  # fmt: skip
MODES = st.sampled_from([0o100644, 0o100755, 0o120000, 0o160000])


@st.composite
def entry_lists(draw: st.DrawFn, length: int = 20) -> list[IndexEntry]:
    entries = []
    for path in sorted(draw(st.sets(PATHS, max_size=8))):
        item = TreeItem(draw(MODES), draw(st.binary(min_size=length, max_size=length)))
        stages = draw(st.sampled_from([(0,), (1,), (2, 3), (1, 2, 3)]))
        for stage in stages:
            flags = draw(st.tuples(st.booleans(), st.booleans(), st.booleans()))
            numbers = bytearray(draw(st.binary(min_size=40, max_size=40)))
            numbers[24:28] = item.mode.to_bytes(4, "big")
            entries.append(IndexEntry(path, item, stage, *flags, stat=bytes(numbers)))
    return entries


@given(entry_lists())
def test_round_trip(entries: list[IndexEntry]) -> None:
    data = encode_index(entries)
    assert parse_index(data) == Index(tuple(entries))
    assert is_same_staging(data, encode_index([entry._replace(stat=bytes(40)) for entry in entries]))


@given(entry_lists(32))
def test_round_trip_sha256(entries: list[IndexEntry]) -> None:
    assert parse_index(encode_index(entries, 32), 32) == Index(tuple(entries))


@given(entry_lists(), st.sets(PATHS, max_size=3))
def test_skip_worktree_changes_nothing_else(entries: list[IndexEntry], paths: set[bytes]) -> None:
    chosen = paths | {entry.path for entry in entries[::2]}
    for before, after in zip(entries, with_skip_worktree(entries, chosen), strict=True):
        assert after.skip_worktree == (before.skip_worktree or (before.path in chosen and not before.stage))
        assert after._replace(skip_worktree=before.skip_worktree) == before


def test_staging_is_compared_without_caches_and_flags() -> None:
    item, other = TreeItem(0o100644, b"1" * 20), TreeItem(0o100644, b"2" * 20)
    one = encode_index([IndexEntry(b"a", item)])
    assert is_same_staging(one, encode_index([IndexEntry(b"a", item, skip_worktree=True, stat=b"x" * 40)]))
    assert not is_same_staging(one, encode_index([IndexEntry(b"a", other)]))
    assert not is_same_staging(one, encode_index([IndexEntry(b"a", item, intent_to_add=True)]))
    assert not is_same_staging(one, encode_index([]))
    assert not is_same_staging(one, b"garbage")
    assert is_same_staging(b"garbage", b"garbage")


def test_a_refreshed_index_stages_the_same() -> None:
    """Stat data alone makes no difference; a mode, an id, a name, a flag or one entry more does."""
    entries = [IndexEntry(b"d/f%d" % number, TreeItem(0o100644, bytes([number] * 20))) for number in range(50)]
    before = encode_index(entries)
    refreshed = [entry._replace(stat=bytes([7] * 40)) for entry in entries]
    assert is_same_staging(before, encode_index(refreshed))
    last = entries[-1]
    for other in (
        last._replace(item=TreeItem(0o100755, last.item.id)),
        last._replace(item=TreeItem(0o100644, b"x" * 20)),
        last._replace(path=b"d/g49"),
        last._replace(intent_to_add=True),
        last._replace(stage=1),
    ):
        assert not is_same_staging(before, encode_index([*refreshed[:-1], other]))
    assert not is_same_staging(before, encode_index(refreshed[:-1]))
    skipped = encode_index([*refreshed[:-1], last._replace(skip_worktree=True)])
    assert is_same_staging(before, skipped) and is_same_staging(skipped, before)
    first, second = (
        encode_index([last._replace(skip_worktree=True, item=TreeItem(0o100644, i * 20))]) for i in (b"a", b"b")
    )
    assert not is_same_staging(first, second)
