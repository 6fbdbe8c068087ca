"""Files that a command wrote outside the project: kept for a day, listed, copied out."""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import time
from pathlib import Path

import pytest

from box import if_namespaces
from conftest import Place
from mudroom.core.clock import SECOND
from mudroom.core.retention import retention_limits
from mudroom.core.settings import Settings
from mudroom.ext.outside import store
from mudroom.vault import moment
from mudroom.vault.retention.prune import collect_garbage
from test_vault_verb import Cli

pytestmark = [pytest.mark.both_users, if_namespaces]


@pytest.fixture
def cli(place: Place) -> Cli:
    return Cli(place)


def said(cli: Cli, *words: str, code: int = 0) -> str:
    done = cli(*words)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def stored(place: Place) -> list[Path]:
    return sorted(path for path in place.state.glob("vaults/*/outside/**/*") if path.is_file())


def test_a_dropped_file_is_copied_out_to_where_it_was_written(cli: Cli) -> None:
    home = cli.place.home
    told = said(cli, "run", "--yes", "--", "sh", "-c", "echo made > ~/report; echo x > ~/tool; chmod +x ~/tool")
    hint = next(line for line in told.splitlines() if "not kept" in line)
    command = hint.partition("for a day, ")[2].removesuffix(" copies it out").split()
    assert command[:2] == ["mudroom", "keep"] and command[3] == "~/report"
    fork = command[2]
    assert not (home / "report").exists()
    assert "copied: " in said(cli, "keep", fork, f"{home}/report")
    assert (home / "report").read_text() == "made\n"
    said(cli, "keep", fork, f"{home}/tool")
    assert stat.S_IMODE((home / "tool").stat().st_mode) & 0o7100 == 0o100
    there = said(cli, "keep", fork, f"{home}/report", code=125)
    assert f"{home}/report exists, and is not replaced (mudroom keep {fork} {home}/report --to DEST" in there
    said(cli, "keep", fork, f"{home}/report", "--to", f"{home}/other")
    assert (home / "other").read_text() == "made\n"
    said(cli, "keep", fork, f"{home}/report", "--to", str(cli.place.project))
    assert (cli.place.project / "report").read_text() == "made\n"


def test_a_link_at_the_destination_is_not_written_through(cli: Cli) -> None:
    said(cli, "exec", "--fork", "x", "--", "sh", "-c", "echo 1 > ~/report")
    (cli.place.home / "report").symlink_to(cli.place.root / "aim")
    assert "exists" in said(cli, "keep", "x", f"{cli.place.home}/report", code=125)
    assert not (cli.place.root / "aim").exists()


def test_a_copy_that_does_not_fit_leaves_no_part(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would stand in the way of the next try."""
    (place.root / "stored").write_text("x" * 100)
    file = store.StoredFile("f", b"/tmp/x", 100, False, os.fsencode(place.root / "stored"), 1)
    parts = iter([b"part"])
    with monkeypatch.context() as patch, pytest.raises(StopIteration):
        patch.setattr(os, "read", lambda *_words: next(parts))
        store.copy_out(file, os.fsencode(place.root / "copy"))
    assert not (place.root / "copy").exists()


def test_the_list_and_what_is_not_there(cli: Cli) -> None:
    assert "no files are kept: commands wrote nothing outside the project in the last day" in said(cli, "keep")
    assert "--to needs the file to copy" in said(cli, "keep", "--to", "x", code=125)
    said(cli, "exec", "--fork", "x", "--", "sh", "-c", "echo 1 > ~/one; echo 22 > /tmp/two")
    said(cli, "exec", "--fork", "x", "--", "sh", "-c", "echo 333 > ~/one")
    rows = json.loads(said(cli, "keep", "--json"))
    assert rows["schema"] == "mudroom.outside/1"
    files = [(row["fork"], row["path"], row["bytes"]) for row in rows["files"]]
    assert files == [("x", "/tmp/two", 3), ("x", f"{cli.place.home}/one", 4)]
    listed = said(cli, "keep", "x")
    assert "~/one" in listed and "/tmp/two" in listed
    copied = json.loads(said(cli, "keep", "x", f"{cli.place.home}/one", "--json"))
    assert copied == {"schema": "mudroom.kept/1", "path": f"{cli.place.home}/one", "to": f"{cli.place.home}/one"}
    assert (cli.place.home / "one").read_text() == "333\n"
    said(cli, "exec", "--fork", "y", "--", "sh", "-c", "echo last > ~/one")
    last = json.loads(said(cli, "keep", f"{cli.place.home}/one", "--to", f"{cli.place.home}/two", "--json"))
    assert last["to"] == f"{cli.place.home}/two" and (cli.place.home / "two").read_text() == "last\n"
    refused = said(cli, "keep", "x", "/tmp/three", code=125)
    assert "x has no file /tmp/three (mudroom keep x lists its files)" in refused
    assert "no files of z are kept (mudroom keep lists those that are, for a day)" in said(cli, "keep", "z", code=125)
    there = said(cli, "keep", "x", f"{cli.place.home}/one", "--to", f"{cli.place.home}/no/one", code=125)
    assert f"{cli.place.home}/no does not exist (mkdir -p {cli.place.home}/no)" in there


def test_discard_removes_them_and_an_apply_does_not(cli: Cli) -> None:
    said(cli, "exec", "--fork", "x", "--", "sh", "-c", "echo 1 > ~/one; echo 1 > f")
    said(cli, "apply", "x", "--yes")
    assert len(stored(cli.place)) == 2
    said(cli, "discard", "x") if "x" in said(cli, "ls", "--json") else None
    said(cli, "exec", "--fork", "y", "--", "sh", "-c", "echo 1 > ~/one; echo 1 > f")
    said(cli, "discard", "y")
    assert "y" not in {row["fork"] for row in json.loads(said(cli, "keep", "--json"))["files"]}


def test_they_are_private(place: Place) -> None:
    place.sh("umask 0; echo 1 > ~/one; chmod 777 ~/one")
    for path in stored(place):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stored(place)


def test_secrets_are_not_stored(place: Place) -> None:
    settings = Settings(secrets_mask=(b"*.hidden",))
    _session, result = place.sh(
        "mkdir -p ~/.ssh ~/.aws; echo k > ~/.ssh/id_rsa; echo k > ~/.aws/credentials; echo k > ~/.env"
        "; echo k > ~/a.hidden; echo A=1 > ~/plain",
        settings,
    )
    kept = {os.fsdecode(file.path) for file in result.left if file.kept}
    assert kept == {f"{place.home}/plain"}
    assert len(stored(place)) == 2
    assert any("; for a day, mudroom keep" in note and "~/plain" in note for note in result.notes)


def test_a_value_that_must_not_be_written_down_is_not_stored(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE_TOKEN", "tk-93hfkw02jdmmz71")
    _session, result = place.sh("echo 'x tk-93hfkw02jdmmz71 y' > ~/report")
    assert [file.kept for file in result.left] == [False]
    assert not any("mudroom keep" in note for note in result.notes)


def test_what_does_not_fit_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST_BYTES", 100)
    _session, result = place.sh("echo 1 > ~/small; head -c 101 /dev/zero > ~/large")
    assert {os.path.basename(file.path): file.kept for file in result.left} == {b"small": True, b"large": False}
    assert result.notes[-1].endswith(" ~/small copies it out, but not ~/large")


def test_the_note_can_be_pasted(cli: Cli) -> None:
    told = said(cli, "run", "--yes", "--", "sh", "-c", "echo 1 > ~/'a b;c'")
    command = re.search(r"for a day, (mudroom keep .*) copies it out", told)
    assert command is not None and "~/'a b;c'" in command[1]
    said(cli, *shlex.split(command[1].replace("~", str(cli.place.home)))[1:])
    assert (cli.place.home / "a b;c").read_text() == "1\n"


def test_the_store_is_bounded_and_old_ones_leave_first(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MOST_STORED", 10)
    session = place.session()
    for number in range(5):
        assert session.run([b"sh", b"-c", b"echo 123 > ~/f%d" % number], fork="x").left
    assert [os.path.basename(file.path) for file in store.stored(session.vault)] == [b"f3", b"f4"]


def test_a_day_later_they_are_gone(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session = place.session()
    session.run([b"sh", b"-c", b"echo 1 > ~/old"], fork="x")
    monkeypatch.setattr(store, "AGE", 0)
    assert store.stored(session.vault) == []
    session.run([b"sh", b"-c", b"echo 1 > ~/new"], fork="y")
    assert not list(place.state.glob("vaults/*/outside/x/*"))


def test_gc_removes_old_ones(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session = place.session()
    session.run([b"sh", b"-c", b"echo 1 > ~/old"], fork="x")
    later = time.time_ns() + 86_500 * SECOND
    limits = retention_limits(Settings())
    monkeypatch.setattr(moment, "running", lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME) + 86_500 * SECOND)
    with session.alone("gc"):
        assert collect_garbage(session.vault, limits, later, dry_run=True).leftovers
        collect_garbage(session.vault, limits, later)
    assert not list(place.state.glob("vaults/*/outside/*"))
