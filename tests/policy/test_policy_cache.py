"""Settings that are kept from one command to the next: the same as if the files were read, or they are read."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from clocks import give_way
from conftest import Place, environment
from mudroom.core.settings import Loaded
from mudroom.policy import cache, combine
from mudroom.policy.config import load_policy
from mudroom.policy.first_policy import first_policy
from mudroom.stage import stamp
from policy_files import LOOSE, TIGHT, Files, Strange, text_of


class Kept(Strange):
    """``Strange``, asked as commands ask, with clocks that have long gone on."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads = 0

    def load(self) -> Loaded:
        return load_policy(os.fsencode(self.project), self.environ)

    @property
    def snapshot(self) -> Path:
        return Path(os.fsdecode(cache.cache_path(os.fsencode(self.state), os.fsencode(self.project))))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    found = Kept(tmp_path)
    monkeypatch.setattr(cache, "is_settled", lambda _ctime, _now: True)
    real = combine.load

    def counted(*args: bytes, trusts_all: bool) -> Loaded:
        found.reads += 1
        return real(*args, trusts_all=trusts_all)

    monkeypatch.setattr(combine, "load", counted)
    return found


@pytest.mark.parametrize("table", [LOOSE, TIGHT], ids=["loose", "tight"])
@pytest.mark.parametrize("trusted", [True, False])
def test_every_setting_comes_back_as_it_was(files: Kept, table: dict[str, str], trusted: bool) -> None:
    if trusted:
        files.environ[b"MUDROOM_TRUST_POLICY"] = b"1"
    for key, value in table.items():
        files.write(project=text_of(key, value))
        first, count = files.load(), files.reads
        second = files.load()
        assert second._replace(files=()) == first._replace(files=())
        assert set(second.files) == set(first.files)
        assert repr(second.settings) == repr(first.settings)
        assert files.reads == count + (key == "run.read" and trusted), key


def test_all_files_together(files: Kept) -> None:
    files.environ[b"MUDROOM_TRUST_POLICY"] = b"1"
    files.write(
        project="include: more.yaml\ncommands: {rules: [{pattern: [a, [b, c]], action: deny, match: [a b]}]}",
        user=(
            "network: {inspect: [{host: a.com, set: {x-a: b}}]}\n"
            "roles: {r: {classes: {unknown: deny}}}\nagents: {a: r}\n"
        ),
        local="limits: {cpus: 1.5}",
        rules="allow: [make]",
    )
    (files.project / ".mudroom/more.yaml").write_text("network: {deny: [b.com]}")
    first = files.load()
    assert (files.load().settings, files.reads) == (first.settings, 1)


def replaced(path: Path) -> None:
    path.with_name("new").write_text("run: {view: copy}\n")
    path.with_name("new").rename(path)


def linked(path: Path) -> None:
    path.rename(path.parent.parent / "x")
    path.symlink_to(path.parent.parent / "x")


CHANGES: dict[str, Callable[[Files], object]] = {
    "edited": lambda files: files.places["project"].write_text("run: {view: copy}\n"),
    "replaced": lambda files: replaced(files.places["project"]),
    "gone": lambda files: files.places["project"].unlink(),
    "linked": lambda files: linked(files.places["project"]),
    "user": lambda files: files.write(user="run: {view: copy}"),
    "local": lambda files: files.write(local="run: {view: copy}"),
    "rules": lambda files: files.write(rules="deny: [make]"),
    "included": lambda files: (files.project / ".mudroom/more.yaml").write_text("run: {view: copy}\n"),
    "mode": lambda files: files.places["project"].chmod(0o600),
    "trust": lambda files: files.trust(),  # type: ignore[attr-defined]
    "environment": lambda files: files.environ.update({b"MUDROOM_TRUST_POLICY": b"1"}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_is_seen(files: Kept, change: str) -> None:
    files.write(project="include: more.yaml\nnetwork: {mode: open}\n")
    (files.project / ".mudroom/more.yaml").write_text("run: {timeout: 1m}\n")
    before = files.load()
    assert (files.load(), files.reads) == (before._replace(files=files.load().files), 1)
    CHANGES[change](files)
    if change == "linked":
        assert "is a symbolic link" in files.refusal()
        return
    after = files.load()
    assert files.reads == 2
    assert (after.settings == before.settings) is (change == "mode")


def test_an_included_file_that_goes_while_the_rest_is_read_is_missed(
    files: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    files.write(project="include: more.yaml\n")
    more, load = files.project / ".mudroom/more.yaml", combine.load
    more.write_text("run: {timeout: 1m}\n")

    def slowly(*args: bytes, trusts_all: bool) -> Loaded:
        found = load(*args, trusts_all=trusts_all)
        more.unlink()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(combine, "load", slowly)
        files.load()
    assert "more.yaml" in files.refusal()


def moved(path: Path, to: Path) -> None:
    path.unlink()
    path.symlink_to(to)


@pytest.mark.parametrize("what", ["first", "second", "directory", "file"])
def test_whatever_changes_on_the_way_to_the_users_own_file_is_seen(files: Kept, what: str) -> None:
    own, second, directory = files.places["user"], files.home / "second.yaml", files.home / "dotfiles"
    for name, text in (("one", "{mode: none}"), ("two", "{mode: gate}")):
        (files.home / name).mkdir()
        (files.home / name / "policy.yaml").write_text(f"network: {text}")
    own.parent.mkdir(parents=True)
    own.symlink_to(second)
    second.symlink_to("dotfiles/policy.yaml")
    directory.symlink_to("one")
    assert (files.load().settings.network, files.load().settings.network, files.reads) == ("none", "none", 1)
    if what == "first":
        moved(own, files.home / "two/policy.yaml")
    elif what == "second":
        moved(second, Path("two/policy.yaml"))
    elif what == "directory":
        moved(directory, Path("two"))
    else:
        (files.home / "one/policy.yaml").write_text("network: {mode: gate}")
    assert (files.load().settings.network, files.reads) == ("gate", 2)


def test_a_users_own_file_that_comes_where_its_link_leads_is_read(files: Kept) -> None:
    own = files.places["user"]
    files.write(project="run: {view: copy}")
    own.parent.mkdir(parents=True)
    own.symlink_to("real.yaml")
    for _again in range(2):
        assert "a file that is not there" in files.refusal()
    own.with_name("real.yaml").write_text("network: {mode: none}")
    assert files.load().settings.network == "none"


def test_another_program_reads_anew(files: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write(project="run: {view: copy}")
    files.load()
    monkeypatch.setattr(cache, "__version__", "9")
    files.load()
    assert files.reads == 2


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "readable", "linked", "directory"])
def test_a_snapshot_that_is_odd_is_none(files: Kept, damage: str) -> None:
    files.write(project="run: {view: copy}")
    expected = files.load().settings
    path = files.snapshot
    assert path.stat().st_mode & 0o777 == 0o600
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[:-1])
    elif damage == "flipped":
        path.write_bytes(data[:100] + bytes([data[100] ^ 1]) + data[101:])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "readable":
        path.chmod(0o644)
    else:
        path.unlink()
        if damage == "linked":
            (files.home / "x").write_bytes(data)
            path.symlink_to(files.home / "x")
        else:
            path.mkdir()
    assert files.load().settings == expected
    assert files.reads == 2


def test_an_error_is_not_kept(files: Kept) -> None:
    files.write(project="run: {vew: copy}")
    for _again in range(2):
        assert "there is no setting run.vew" in files.refusal()
    assert not files.snapshot.exists()


def test_what_has_just_been_written_is_not_kept(tmp_path: Path) -> None:
    """The next change could have the very same stamp."""
    files = Kept(tmp_path)
    files.write(project="run: {view: copy}")
    assert files.load().settings.view == "copy"
    assert not files.snapshot.exists()


def test_a_state_that_cannot_be_written_is_no_harm(files: Kept) -> None:
    files.write(project="run: {view: copy}")
    files.state.write_text("")
    assert files.load().settings.view == "copy"


def test_a_command_reads_no_yaml_twice(place: Place) -> None:
    """What a command imports for the sake of policies: without any nothing, and nothing heavy for one that is known."""

    def modules() -> set[str]:
        program = (
            "import os, sys; from mudroom.cli import project_session; from mudroom.policy.config import load_policy; "
            f"load_policy({os.fsencode(place.project)!r}, os.environb); print(*sys.modules)"
        )
        environ = environment(place, PYTHONPATH=os.pathsep.join(sys.path))
        done = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
        return {name for name in done.stdout.split() if name.split(".")[0] in ("mudroom", "yaml", "tree_sitter")}

    heavy = {
        "yaml",
        "tree_sitter",
        "mudroom.policy.combine",
        "mudroom.policy.parse",
        "mudroom.core.command.program.classification",
    }
    assert not modules() & (heavy | {"mudroom.policy.cache"})
    path = place.write(".mudroom/policy.yaml", first_policy())
    assert heavy <= modules() | {"tree_sitter"}
    while not stamp.is_settled(path.stat().st_ctime_ns, time.time_ns()):
        give_way()
    modules()
    assert not modules() & heavy


@pytest.mark.parametrize(("looked", "kept"), [(-1, False), (1, False), (10_000_000_000, True)])
def test_what_has_changed_since_it_was_looked_at_is_not_kept(tmp_path: Path, looked: int, kept: bool) -> None:
    """Nor just before, however long it took to read it."""
    file = tmp_path / "policy.yaml"
    file.write_text("{}")
    found, place = cache.stamp(os.fsencode(file)), os.fsencode(tmp_path / "state/compiled/kept")
    cache.store(place, ("key",), Loaded(), [(os.fsencode(file), found)], file.stat().st_ctime_ns + looked)
    assert (cache.load(place, ("key",)) is not None) == kept
