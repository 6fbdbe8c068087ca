"""What a vault holds, counted as du counts it."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Place, full_listing
from inner_path import inner
from mudroom.core.merge.operations import Op
from mudroom.core.retention import RetentionLimits
from mudroom.core.tree.entry import Entry
from mudroom.stage import disk
from mudroom.vault.apply.landing import removed_first
from mudroom.vault.disk_usage import measure
from mudroom.vault.retention.prune import collect_garbage
from mudroom.vault.retention.usage import KindUsage, is_unused, usage, vault_named, vault_total, vaults, why_unusable
from mudroom.vault.store.store import Vault, open_vault


@pytest.fixture
def vault(tmp_path: Path) -> Iterator[Vault]:
    vault = open_vault(inner(tmp_path / "state"), b"/some/project")
    yield vault
    vault.close()


def du(path: Path) -> int:
    done = subprocess.run(["du", "-s", "--block-size=1", path], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[0])


def test_it_counts_as_du_does(tmp_path: Path) -> None:
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/big").write_bytes(b"x" * 100_000)
    os.link(tmp_path / "d/big", tmp_path / "d/e/again")
    os.truncate(os.open(tmp_path / "d/hole", os.O_CREAT | os.O_WRONLY), 1 << 30)
    (tmp_path / "d/link").symlink_to("/usr")
    (tmp_path / "d/loop").symlink_to(".")
    assert measure(inner(tmp_path / "d")) == du(tmp_path / "d") < 200_000
    assert measure(inner(tmp_path / "d/big")) == du(tmp_path / "d/big")
    assert measure(inner(tmp_path / "absent")) == 0


def test_deeper_than_a_path_can_be_long(tmp_path: Path) -> None:
    at = os.open(tmp_path, os.O_DIRECTORY)
    for _level in range(60):
        os.mkdir("n" * 100, dir_fd=at)
        below = os.open("n" * 100, os.O_DIRECTORY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=at))
    os.close(at)
    assert measure(inner(tmp_path)) == du(tmp_path)


@pytest.mark.skipif(disk.user() == 0, reason="root may read everything")
def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    closed = tmp_path / "d/closed"
    closed.mkdir(parents=True)
    closed.chmod(0)
    remarks: list[str] = []
    assert measure(inner(tmp_path / "d"), None, remarks) > 0
    assert remarks == [f"{closed} cannot be read: its contents are not counted"]
    assert closed.stat().st_mode & 0o777 == 0
    closed.chmod(0o700)


@pytest.mark.skipif(disk.user() == 0, reason="root may read everything")
@pytest.mark.parametrize("above", ["work/45027f8ec2243204", "caches/work/174eec34704c7c5c", "work/12"])
def test_the_closed_directory_of_an_overlay_is_not_told(tmp_path: Path, above: str) -> None:
    """It has stayed if the command was killed, and is empty."""
    closed = tmp_path / "vault/forks/a" / above / "work"
    closed.mkdir(parents=True)
    closed.chmod(0)
    remarks: list[str] = []
    assert measure(inner(tmp_path / "vault"), None, remarks) > 0
    assert remarks == []
    closed.chmod(0o700)


def test_an_empty_vault(vault: Vault) -> None:
    found = usage(vault)
    assert {found.forks.number, found.layers.number, found.applies.number, found.trash.number} == {0}
    assert found.journal == KindUsage(0, 0)
    assert not os.path.exists(vault.path + b"/journal.db")


def lasting(vault: Vault) -> set[str]:
    """Return the names in a vault, without the work directories of overlays, which go with the last process of a
    command: that may be after its result."""
    return {name for name in full_listing(Path(os.fsdecode(vault.path))) if "/caches/work/" not in name}


def test_every_kind_and_nothing_is_changed(place: Place) -> None:
    place.write("a", "a\n")
    session = place.session()
    session.run([b"sh", b"-c", b"echo b >> a"])
    session.changes.apply(session.vault.forks()[0].name)
    session.run([b"sh", b"-c", b"head -c 300000 /dev/zero | tr '\\0' x > big"], fork="f")
    session.forks.new("g", snapshot=True)
    cached = Path(os.fsdecode(session.vault.cache)) / "pip"
    cached.mkdir(exist_ok=True)
    (cached / "wheel").write_bytes(b"w" * 50_000)
    before = lasting(session.vault)
    found = usage(session.vault)
    one = vault_total(session.vault)
    assert lasting(session.vault) >= before
    assert (found.forks.number, found.layers.number, found.snapshots.number, found.applies.number) == (2, 2, 1, 1)
    assert 300_000 <= found.layers.size < 400_000
    assert found.caches.number >= 1
    assert found.caches.size >= 50_000
    assert found.journal.number == 5  # run, apply, fork, run, fork
    assert found.remarks == ()
    assert (one.forks, one.unapplied, one.exists, one.project) == (2, 1, True, os.fsencode(place.project))
    assert 0 <= one.size - found.size <= 64 << 10  # the vault's own few files and directories


def test_layers_that_share_files_are_counted_once(vault: Vault) -> None:
    for name in (vault.new_layer(), vault.new_layer()):
        os.mkdir(vault.layer(name) + b"/tree")
    one, other = (path / "tree/f" for path in (Path(os.fsdecode(vault.path)) / "layers").iterdir())
    one.write_bytes(b"x" * 1_000_000)
    os.link(one, other)
    assert 1_000_000 <= usage(vault).layers.size < 1_100_000


def test_all_vaults_whatever_is_wrong_with_them(tmp_path: Path) -> None:
    state = inner(tmp_path)
    assert vaults(state) == []
    (tmp_path / "here").mkdir()
    good = open_vault(state, inner(tmp_path / "here"))
    gone, newer, half = (open_vault(state, inner(tmp_path / "away" / name)) for name in ("gone", "newer", "half"))
    Path(os.fsdecode(newer.path), "format").write_text("9\n")
    Path(os.fsdecode(half.path), "format").unlink()
    (tmp_path / "vaults/stray").write_text("")
    gone.new_fork("f")
    Path(os.fsdecode(gone.fork("f").record_path)).write_bytes(b"\x91")
    found = {vault.path: vault_total(vault) for vault in vaults(state)}
    assert found[good.path].exists
    assert not found[gone.path].exists
    assert found[gone.path].forks == 1
    assert "is damaged" in found[gone.path].remarks[0]
    assert found[newer.path].remarks == ("has format 9, this mudroom knows 2",)
    assert "not complete" in found[half.path].remarks[0]
    assert [why_unusable(vault) for vault in (good, gone)] == ["", ""]
    assert len(found) == 4
    assert not collect_garbage(gone, RetentionLimits(1, 1, 1), 5)


def test_one_vault_by_its_name(tmp_path: Path, vault: Vault) -> None:
    state = inner(tmp_path / "state")
    found = vault_named(state, os.path.basename(vault.path))
    assert found is not None
    assert (found.path, found.project) == (vault.path, b"/some/project")
    (tmp_path / "state/vaults/file").write_text("")
    for name in (b"", b".", b"..", b"other", b"file", b"../vaults/" + os.path.basename(vault.path)):
        assert vault_named(state, name) is None
    assert vault_named(inner(tmp_path / "none"), b"x") is None


def test_a_vault_that_holds_nothing_is_unused_after_a_day(place: Place, vault: Vault) -> None:
    day, now = 86400 * 10**9, time.time_ns()
    assert not is_unused(vault, now)
    assert is_unused(vault, now + 2 * day)
    session, _result = place.sh("echo a > a")
    assert not is_unused(session.vault, now + 2 * day)


FILE = Entry("file", 0o644, 0, b"", 1, 0, 1, 0, 0, 0, 0)


def test_a_former_name_goes_before_the_new_one_comes() -> None:
    ops = (
        Op("place", b"README", 1, None, FILE),
        Op("place", b"other", 2, None, FILE),
        Op("remove", b"gone", 3, FILE, None, after=b"other"),
        Op("remove", b"readme", 4, FILE, None, after=b"README"),
    )
    assert [(op.path, op.after) for op in removed_first(ops)] == [
        (b"readme", b""),
        (b"README", b""),
        (b"other", b""),
        (b"gone", b"other"),
    ]


def test_other_operations_stay_as_they_are() -> None:
    ops = (Op("swap", b"readme", 1, FILE, FILE), Op("remove", b"README.md", 2, FILE, None))
    assert removed_first(ops) == ops
