"""Forks in a list: how they are counted, and what is shown of their commands."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from conftest import Place
from mudroom.cli.fork.ls import describe
from mudroom.cli.main import run
from mudroom.cli.terminal.terminal import Terminal
from mudroom.errors import ForkGone, MudroomError
from mudroom.session.changes import Changes
from test_vault_verb import Cli


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("src/a", "1\n")
    (place.project / "src/lib").mkdir()
    return Cli(place)


def row(command: str, changed: int = 1) -> dict[str, object]:
    return {
        "fork": "x", "command": command.split(), "state": "ended", "level": 2, "changed": changed,
        "lines_added": 1, "lines_removed": 0, "agent": None, "checkpoints": ["one"], "also_in": [], "problem": None,
    }  # fmt: skip


def test_a_script_is_one_line() -> None:
    script = row("") | {"command": ["sh", "-c", "set -e\nmake\n"]}
    assert describe(script, 80) == r"x  1 file, +1 -0  1 checkpoint  sh -c $'set -e\nmake\n'"
    assert describe(row("make"), 80) == "x  1 file, +1 -0  1 checkpoint  make"
    cut = describe(row("a" * 200, 2), 80)
    assert len(cut) == 80 and cut.startswith("x  2 files, ") and cut.endswith("a…")
    assert describe(row("make", 1490) | {"lines_added": 0}, 80) == "x  1,490 files  1 checkpoint  make", "not counted"
    parts = row("make") | {"also_in": ["your home", "/lib"]}
    assert describe(parts, 80) == "x  1 file, +1 -0, also in your home, also in /lib  1 checkpoint  make"


def test_a_row_is_no_wider_than_the_terminal() -> None:
    wide = row("npm install --save-dev esbuild sharp", 1490) | {"fork": "run-20261126-181014", "state": "running"}
    for width in range(28, 140):
        lines = describe(wide, width).split("\n")
        assert max(map(len, lines)) <= width, (width, lines)
        assert all(line.startswith("  ") and line.strip() for line in lines[1:]), (width, lines)
    assert describe(wide, 40) == (
        "run-20261126-181014  1,490 files, +1 -0\n  running  1 checkpoint\n  npm install --save-dev esbuild sharp"
    )
    assert describe(row("a" * 200), 10).endswith("  aaaaaaa…"), "some of it is shown however narrow it is"
    assert describe(row(""), 40) == "x  1 file, +1 -0  1 checkpoint"


def test_a_reason_is_folded_and_not_cut() -> None:
    damaged = row("") | {"state": "damaged", "problem": "the record of the fork is damaged: it ends in a file name"}
    assert describe(damaged, 200) == (
        "x  damaged: the record of the fork is damaged: it ends in a file name  (mudroom discard x removes it)"
    )
    assert describe(damaged, 40) == (
        "x\n  damaged: the record of the fork is\n  damaged: it ends in a file name\n  (mudroom discard x removes it)"
    )


def test_a_read_that_failed_is_no_damage_that_a_discard_mends() -> None:
    unread = row("") | {"state": "damaged", "problem": "the state of the fork x cannot be read: Input/output error"}
    assert describe(unread, 200) == (
        "x  the state of the fork x cannot be read: Input/output error  "
        "(try again; dmesg may say what is wrong with the disk)"
    )


def test_status_says_how_many_applies_can_be_undone_before_the_last(cli: Cli) -> None:
    for name, said in (("a", "undo     u1\n"), ("b", "undo     u2, then 1 more\n")):
        assert cli("run", "--yes", "--", "touch", f"new-{name}").returncode == 0
        assert said in cli("status").stdout


def test_a_name_that_is_unknown_where_none_is_known_has_a_hint_that_helps(cli: Cli) -> None:
    assert cli("exec", "--fork", "x", "--", "touch", "src/b").returncode == 0
    done = cli("undo", "u9")
    assert done.stderr == (
        "mudroom: there is no apply named u9 (x is not applied yet: mudroom diff x, mudroom apply x, "
        "mudroom discard x)\n"
    )
    assert cli("rollback", "p", "--fork", "x").stderr == (
        "mudroom: x has no checkpoint named p (it has none; mudroom checkpoint NAME --fork x makes one)\n"
    )


def test_a_name_that_is_nearly_that_of_a_fork(cli: Cli) -> None:
    assert cli("exec", "--fork", "feature", "--", "touch", "src/b").returncode == 0
    assert cli("diff", "featur").stderr == (
        "mudroom: there is no fork named featur (did you mean feature? mudroom ls shows the forks of this project)\n"
    )
    assert cli("diff", "x").stderr == "mudroom: there is no fork named x (mudroom ls shows the forks of this project)\n"


def test_an_empty_directory_counts_everywhere(cli: Cli) -> None:
    assert cli("exec", "--fork", "x", "--", "rm", "-rf", "src").returncode == 0
    assert cli.json("ls")["forks"][0]["changed"] == 2
    assert cli("ls").stdout.startswith("x  2 files, +0 -1")


@pytest.mark.both_users
@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting file systems needs root")
def test_a_full_disk_is_no_dead_end(cli: Cli) -> None:
    state = cli.place.state
    state.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs", str(state)], check=True)
    try:
        assert cli("vault", "init").returncode == 0
        done = cli("run", "--keep", "--", "sh", "-c", "head -c 5000000 /dev/zero > big")
        (fork,) = os.listdir(next((state / "vaults").iterdir()) / "forks")
        assert done.returncode == 125 and f"mudroom discard {fork} gives back" in done.stderr
        for verb in ("ls", "status", "fork ls", "vault gc"):
            listed = cli(*verb.split())
            assert listed.returncode == 0, listed.stderr
            assert verb == "vault gc" or fork in listed.stdout
        assert cli("discard", fork).returncode == 0
        assert cli("run", "--keep", "--", "touch", "small").returncode == 0
    finally:
        subprocess.run(["umount", "--lazy", str(state)], check=True)


def test_a_line_with_a_fork_or_a_file_in_the_wrong_place_is_told_as_it_would_be_right(cli: Cli) -> None:
    assert cli("exec", "--fork", "x", "--", "touch", "src/b").returncode == 0
    for words in (("ls", "a b"), ("--", "ls", "a b")):
        ran = cli("exec", "x", *words)
        assert (ran.returncode, ran.stderr) == (
            127,
            "mudroom: x: command not found (in that fork: mudroom exec --fork x -- ls 'a b')\n",
        )
    looked = cli("diff", "src/a")
    assert (looked.returncode, looked.stderr) == (125, "mudroom: there is no fork named src/a (mudroom diff x src/a)\n")
    cli.place.session().forks.new("y")
    assert cli("diff", "src/a").stderr.endswith("(mudroom diff FORK src/a)\n")
    assert cli("rollback", "p").stderr == "mudroom: there are 2 forks (name one with --fork: y, x)\n"
    assert cli("apply").stderr == "mudroom: there are 2 forks (name one of: y, x)\n"


def test_what_waits_fits_a_narrow_terminal(
    cli: Cli, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli("exec", "--fork", "a-longer-name", "--", "touch", "src/b").returncode == 0
    monkeypatch.chdir(cli.place.project)
    monkeypatch.setattr("mudroom.cli.fork.status.show", lambda _project: "PROJECT")
    for width in (40, 80):
        monkeypatch.setattr(Terminal, "columns", lambda _self, _stream, width=width: width)
        assert run([], {key.encode(): value.encode() for key, value in cli.environment.items()}) == 0
        lines = capsys.readouterr().out.splitlines()
        assert max(map(len, lines)) <= width, lines
        command = "  mudroom apply a-longer-name"
        at = next(number for number, line in enumerate(lines) if line.startswith(command))
        beside = "       bring it into the project"
        assert lines[at : at + 2] == [command, "      bring it into the project"] or lines[at] == command + beside


def test_an_apply_that_fails_names_the_fork_that_keeps_the_changes(
    cli: Cli, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_words: object, **_more: object) -> None:
        raise MudroomError("no room on the file system", "make room there")

    monkeypatch.chdir(cli.place.project)
    monkeypatch.setattr(Changes, "apply", failing)
    environ = {key.encode(): value.encode() for key, value in cli.environment.items()}
    assert run(["run", "--yes", "--", "touch", "src/b"], environ) == 125
    *_preview, kept, told = capfd.readouterr().err.splitlines()
    [row] = cli.json("ls")["forks"]
    assert kept.startswith(f"kept as {row['fork']}: mudroom diff ")
    assert told == "mudroom: no room on the file system (make room there)"

    def overtaken(_changes: Changes, name: str, **_more: object) -> None:
        (place,) = cli.place.root.glob(f"**/vaults/*/forks/{name}")  # a discard would wait for this command
        shutil.rmtree(place)
        raise ForkGone(name)

    monkeypatch.setattr(Changes, "apply", overtaken)
    assert run(["run", "--yes", "--", "touch", "src/c"], environ) == 125
    said = capfd.readouterr().err
    assert "any more (mudroom ls shows the forks of this project)" in said and "kept as" not in said


def test_a_fork_of_a_newer_mudroom_is_not_to_be_discarded() -> None:
    newer = row("") | {"state": "damaged", "problem": "the state of the fork x has format 9, this mudroom knows 2"}
    assert describe(newer, 200) == "x  the state of the fork x has format 9, this mudroom knows 2  (upgrade mudroom)"
