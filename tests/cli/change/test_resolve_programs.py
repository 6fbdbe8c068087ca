"""Conflicts that a program of the user's decides: what it is not given, and what is never thrown away of its work."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Place, tick
from mudroom.cli.change.resolution import _Edited
from test_vault_verb import MUDROOM, Cli
from tiers import pairs

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


def test_an_editor_that_is_not_there(cli: Cli) -> None:
    cli.environment["EDITOR"] = "/no/such/editor"
    done = cli("resolve", "x", "f", "--edit")
    told = "mudroom: /no/such/editor cannot be run: No such file or directory (set VISUAL or EDITOR)\n"
    assert (done.returncode, done.stderr) == (125, told)
    assert left(cli) == [] and "conflict" in cli("resolve", "x", "f").stdout


def typed(cli: Cli, body: str, *words: str, before: str = "") -> tuple[int, str]:
    """With the programs alone in a process group: what the script sends to 0 is as if it were typed."""
    cli.environment["EDITOR"] = script(cli, body)
    words = words or ("f", "--edit")
    command = shlex.join([*MUDROOM, "resolve", "x", *words])
    done = subprocess.run(
        ["sh", "-c", f"{before} exec {command}"], cwd=cli.place.project, env=cli.environment, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=60, check=False, start_new_session=True,
    )  # fmt: skip
    return done.returncode, done.stderr


def driver(cli: Cli) -> tuple[str, ...]:
    return "f", "--tool", f"{cli.place.root / 'program'} %A %B"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT], ids=lambda one: one.name)
def test_what_is_typed_is_for_the_editor(cli: Cli, number: signal.Signals) -> None:
    """It goes on, and what it writes is decided for."""
    body = f"trap 'echo decided > \"$1\"; exit 0' {number}; kill -{number} 0; exit 9\n"
    assert typed(cli, body) == (0, "all is decided: mudroom apply x\n")
    assert left(cli) == []
    assert cli("apply", "x", "--yes", "f").returncode == 0
    assert (cli.place.project / "f").read_text() == "decided\n"


def test_an_editor_that_ends_by_ctrl_c(cli: Cli) -> None:
    code, said = typed(cli, 'echo precious > "$1"; kill -INT 0; exit 9')
    assert (code, said.count("\n")) == (130, 1)
    assert said.startswith("mudroom: the editor was ended by SIGINT (nothing was decided; ")
    assert kept(cli, said) == "precious\n"


def test_an_editor_that_ends_by_ctrl_c_and_nothing_written(cli: Cli) -> None:
    code, said = typed(cli, "kill -INT 0; exit 9")
    assert (code, said) == (130, "mudroom: the editor was ended by SIGINT (nothing was decided)\n")
    assert list((cli.place.root / "tmp").iterdir()) == []


@pytest.mark.parametrize("heeds", ["", "trap '' INT; "], ids=["heeds it", "does not"])
@pytest.mark.parametrize("whom", ["0", "$PPID"], ids=["all", "mudroom alone"])
def test_ctrl_c_ends_a_merge_driver(cli: Cli, whom: str, heeds: str) -> None:
    code, said = typed(cli, f'{heeds}echo precious > "$1"; kill -INT {whom}; exec sleep 60', *driver(cli))
    assert (code, said.count("\n")) == (130, 1)
    assert said.startswith("mudroom: told to end by SIGINT (nothing was decided; ")
    assert kept(cli, said) == "precious\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda one: one.name)
@pytest.mark.parametrize(("how", "heeds"), pairs(["--edit", "--tool"], ["", "trap '' TERM HUP; "]))
def test_who_ends_mudroom_ends_the_program(cli: Cli, how: str, number: signal.Signals, heeds: str) -> None:
    """In order: what was written is kept and told, and what else was there is not left."""
    leavings = 'mkdir .bak; cp "$1" .bak; touch -d "1 hour ago" "$1~"'
    body = f'{heeds}{leavings}; echo precious > "$1"; kill -{number} $PPID; exec sleep 60'
    code, said = typed(cli, body, *(driver(cli) if how == "--tool" else ()))
    assert (code, said.count("\n")) == (128 + number, 1)
    assert said.startswith(f"mudroom: told to end by {number.name} (nothing was decided; ")
    assert kept(cli, said) == "precious\n"


def test_what_an_editor_rescues_when_it_is_ended_is_kept(cli: Cli) -> None:
    """It had no time to ask whether what was typed is to be saved."""
    body = "trap 'echo unsaved > \"$1.save\"; exit 1' TERM; kill -TERM $PPID; while :; do :; done"
    code, said = typed(cli, body)
    assert code == 128 + signal.SIGTERM and "what was written is kept: " in said
    assert {path.name: path.read_text() for path in left(cli)}.pop("conflict.save") == "unsaved\n"
    assert {path.name for path in left(cli)} == {"kept", "conflict.save"}


def test_what_mudroom_was_told_to_ignore_the_editor_ignores(cli: Cli) -> None:
    body = 'for one in INT QUIT HUP; do kill -$one $$; kill -$one $PPID; done; echo decided > "$1"'
    assert typed(cli, body, before="trap '' INT QUIT HUP;")[0] == 0
    assert left(cli) == []


def test_nothing_is_removed_by_a_link(cli: Cli) -> None:
    project = cli.place.project
    body = f"ln -s '{project}' link; mkdir -p a/b; ln -s '{project}' a/b/link; ln -s '{project}/f' a/f"
    code, said = edited(cli, f'{body}; echo more >> "$1"; exit 3')
    assert code == 125 and kept(cli, said).endswith("more\n")
    assert [path.name for path in (cli.place.root / "tmp").rglob("*") if path.name != "kept"] == [
        path.name for path in (cli.place.root / "tmp").iterdir()
    ]
    assert (project / "f").read_text() == TEXT.replace("line 3\n", "ours\n")


def test_what_was_written_is_told_of_whatever_happens(tmp_path: Path) -> None:
    said: list[str] = []
    with pytest.raises(OSError, match="full"), _Edited(tmp_path / "conflict.py", b"given", said.append):
        (tmp_path / "conflict.py").write_bytes(b"precious")
        raise OSError("the disk is full")
    assert said == [f"what was written is kept: {tmp_path / 'kept.py'}"]
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("kept.py", b"precious")]


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


def test_a_program_is_one_of_an_absolute_entry_of_path_or_named_from_here(cli: Cli) -> None:
    """It is started in a directory of its own, where other entries and names mean something else."""
    log = cli.place.root / "log"
    ours = script(cli, f"echo merged > \"$1\"; echo ours >> '{log}'")
    beside = cli.place.root / "tmp/program"  # ".." of that directory
    beside.write_text(f"#!/bin/sh\necho theirs >> '{log}'\n")
    beside.chmod(0o755)
    cli.environment["PATH"] = f"..:{cli.place.root}:{cli.environment['PATH']}"
    for word in ("program", os.path.relpath(ours, cli.place.project)):
        cli.environment["EDITOR"] = word
        for words in (("--tool", f"{word} %A %B"), ("--edit",)):
            done = cli("resolve", "x", "f", *words)
            assert done.returncode == 0, done.stderr
            assert cli("resolve", "x", "f", "--undecide").returncode == 3
    assert log.read_text() == "ours\n" * 4


def test_a_program_with_an_open_quote_is_one_line(cli: Cli) -> None:
    cli.environment["EDITOR"] = "vi 'x"
    for words in (("--tool", "vi 'x"), ("--edit",)):
        done = cli("resolve", "x", "f", *words)
        assert (done.returncode, done.stderr) == (125, "mudroom: vi 'x: No closing quotation (close the quote)\n")


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
