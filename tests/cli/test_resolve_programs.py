"""Conflicts that a program of the user's decides: what it is not given, and what is never thrown away of its work."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from test_vault_verb import Cli

from conftest import Place, tick

TEXT = "".join(f"line {number}\n" for number in range(1, 41))


@pytest.fixture
def cli(place: Place) -> Cli:
    """``f`` and ``.env`` conflict; what is left of programs is below ``place.root / "tmp"``."""
    place.write("f", TEXT)
    cli = Cli(place)
    done = cli("exec", "--fork", "x", "--", "sh", "-c", "sed -i 's/^line 3$/theirs/' f; echo theirs > .env")
    assert done.returncode == 0, done.stderr
    tick()
    place.write("f", TEXT.replace("line 3\n", "ours\n"))
    place.write(".env", "TOKEN=swordfish\n")
    (place.root / "tmp").mkdir()
    cli.environment["TMPDIR"] = str(place.root / "tmp")
    return cli


def script(cli: Cli, body: str) -> str:
    path = cli.place.root / "program"
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)
    return str(path)


def edited(cli: Cli, body: str, *words: str) -> tuple[int, str]:
    cli.environment["EDITOR"] = script(cli, body)
    done = cli("resolve", "x", *(words or ("f", "--edit")))
    return done.returncode, done.stderr


def left(cli: Cli) -> list[Path]:
    return [path for path in (cli.place.root / "tmp").rglob("*") if path.is_file()]


def kept(cli: Cli, said: str) -> str:
    """The text that is kept where it was said to be; only its user can read it, and nothing else is left."""
    found = re.search(r"what was written is kept: ([^\s)]+)", said)
    assert found is not None, said
    path = Path(found[1])
    assert left(cli) == [path]
    assert path.parent.stat().st_mode & 0o077 == 0
    return path.read_text()


def test_an_edit_that_was_overtaken_is_kept(cli: Cli) -> None:
    file = cli.place.project / "f"
    code, said = edited(cli, f"echo precious > \"$1\"; echo saved >> '{file}'\n")
    assert (code, said.count("\n")) == (4, 1)
    assert said.startswith(
        "mudroom: one side of f has changed since you looked; nothing was decided (look at it again; "
    )
    assert kept(cli, said) == "precious\n"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('echo more >> "$1"', "f still has conflict markers (nothing was decided; edit it again; "),
        ('echo more >> "$1"; touch "$1~"; exit 3', "the editor exited with 3 (nothing was decided; "),
    ],
)
def test_an_edit_that_was_refused_is_kept(cli: Cli, body: str, reason: str) -> None:
    code, said = edited(cli, body)
    assert code == 125 and said.startswith("mudroom: " + reason)
    assert kept(cli, said).endswith("line 40\nmore\n")
    assert "conflict" in cli("resolve", "x", "f").stdout


@pytest.mark.parametrize("how", ["--edit", "--tool"])
def test_what_was_written_before_ctrl_c_is_told_of(cli: Cli, how: str) -> None:
    body = 'echo precious > "$1"; kill -INT $PPID; exec sleep 60'
    words = ("f", "--edit") if how == "--edit" else ("f", "--tool", f"{script(cli, body)} %A %B")
    code, said = edited(cli, body, *words)
    assert code == 130
    first, second = said.splitlines()
    assert second == "mudroom: interrupted"
    assert kept(cli, first) == "precious\n"


@pytest.mark.parametrize("body", ["exit 0", "exit 3", 'cp "$1" "$1~"; exit 3', 'rm "$1"'])
def test_what_nobody_has_written_is_not_kept(cli: Cli, body: str) -> None:
    code, said = edited(cli, body)
    assert code == 125 and "kept" not in said
    assert list((cli.place.root / "tmp").iterdir()) == []


def test_an_editor_that_leaves_no_file(cli: Cli) -> None:
    assert edited(cli, 'rm "$1"')[1].startswith(
        "mudroom: the editor left no file: No such file or directory (nothing was"
    )


def test_nothing_is_left_of_an_edit_that_was_decided_for(cli: Cli) -> None:
    assert edited(cli, 'echo good > "$1"')[0] == 0
    assert list((cli.place.root / "tmp").iterdir()) == []


def test_what_a_merge_driver_made_is_kept(cli: Cli) -> None:
    file = cli.place.project / "f"
    driver = script(cli, f"echo merged > \"$1\"; echo saved >> '{file}'")
    done = cli("resolve", "x", "f", "--tool", f"{driver} %A %B")
    assert done.returncode == 4
    assert kept(cli, done.stderr) == "merged\n"


@pytest.mark.parametrize("how", [("--edit",), ("--tool", "PROGRAM %A %B")])
def test_a_secret_is_given_to_no_program(cli: Cli, how: tuple[str, ...]) -> None:
    seen = cli.place.root / "seen"
    program = script(cli, f'cat "$1" > \'{seen}\'; echo decided > "$1"')
    words = [word.replace("PROGRAM", program) for word in how]
    cli.environment["EDITOR"] = program
    done = cli("resolve", "x", ".env", *words)
    assert done.returncode == 125 and not seen.exists()
    assert done.stderr == (
        "mudroom: .env is a secret: no program is given it (--mine or --theirs, or --show PATH beside it)\n"
    )
    assert cli("resolve", "x", ".env", *words, "--show", ".env").returncode == 0
    assert "swordfish" in seen.read_text()
    assert cli("apply", "x", "--yes", ".env").returncode == 0
    assert (cli.place.project / ".env").read_text() == "decided\n"


def test_a_secret_is_decided_as_a_whole(cli: Cli) -> None:
    done = cli("resolve", "x", ".env", "--mine")
    assert done.returncode == 0 and done.stdout.startswith("decided: the project's  .env: ")
    assert "swordfish" not in done.stdout + done.stderr


def test_a_secret_is_not_shown_with_markers(cli: Cli) -> None:
    shown = cli("diff", "x", "--conflicts").stdout
    first, second = shown.splitlines()[:2]
    assert first.startswith("conflict .env: ") and second == "a secret: it is not shown"
    assert "swordfish" not in shown and "+<<<<<<< project\n ours\n" in shown


def test_what_is_decided_is_told_and_edited_again(cli: Cli) -> None:
    assert cli("resolve", "x", "f", "--hunk", "1", "--both").stdout.startswith("decided: both  f: ")
    assert cli.json("resolve", "x", "f")["conflicts"][0]["take"] == "content"
    code, said = edited(cli, 'grep -q "<<<<" "$1" && exit 9; sed -i "s/^theirs$/again/" "$1"')
    assert (code, said.splitlines()[0]) == (
        0, "f is decided: this is the result; --undecide for the markers",
    )  # fmt: skip
    assert cli("resolve", "x", "f").stdout.startswith("decided: lines of your own  f: ")
    assert cli("apply", "x", "--yes", "f").returncode == 0
    assert (cli.place.project / "f").read_text() == TEXT.replace("line 3\n", "ours\nagain\n")


@pytest.mark.parametrize(("choice", "told"), [("--mine", "the project's"), ("--theirs", "the fork's")])
def test_which_side_was_decided_for(cli: Cli, choice: str, told: str) -> None:
    assert cli("resolve", "x", "f", choice).stdout.startswith(f"decided: {told}  f: ")


def test_an_edit_over_what_somebody_else_has_decided_meanwhile_is_kept(cli: Cli) -> None:
    assert cli("resolve", "x", "f", "--hunk", "1", "--both").returncode == 0
    decide = f"'{sys.executable}' -m mudroom resolve x f --theirs"
    theirs = f"cd '{cli.place.project}' && {decide} >/dev/null 2>&1 || exit 9\n"
    code, said = edited(cli, theirs + 'sed -i s/ours/mine/ "$1"\n')
    assert code == 4
    assert "somebody else has decided about f meanwhile" in said
    assert "mine\n" in kept(cli, said)
    assert "decided: the fork's" in cli("resolve", "x", "f").stdout
