"""Messages of errors, each brought about by what a user would type, write or pass. One process; a row is a few
milliseconds. ``tests/messages.py`` lists the messages that no test has."""

from __future__ import annotations

import asyncio
import os
import pickle
import shlex
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

import mudroom
from conftest import Place
from mudroom.cli.main import run
from mudroom.errors import MudroomError
from mudroom.ext.attempts.session.request import AttemptRequest, checked
from mudroom.library.argument import name_of, paths_of, required_name
from mudroom.policy import command_answers
from mudroom.policy.parse import PolicyFolder, parse
from mudroom.session.confinement.appearance import require_appearance
from mudroom.stage.private_directory import require_private
from mudroom.vault.approvals.question import decision_at

LINES = {
    # two options that exclude each other, or an option of another action
    "apply f --commit --git": "--commit makes one commit of the applied files, and does not go with --git",
    "apply f --commit --commits": "and does not go with --commits (leave one of them out)",
    "diff f --patch": "--patch and --repository are for --commits (mudroom diff FORK prints the differences of files)",
    "diff f --commits --conflicts": "--commits and --conflicts are two different lists (one of them at a time)",
    "exec --on big --background -- true": "--on is not for --background, --stream and --fork",
    "exec --stream -- true": "--stream is for --json, and not for the background (mudroom ps --output ID)",
    "run --ask terminal -- true": "--ask terminal: there is no terminal to ask on (leave --ask out, or --ask queue)",
    "try --ask terminal -- true": "--ask terminal: attempts run side by side and cannot share the terminal",
    "fork new x --from f --snapshot": "--snapshot is not for --from: a fork of a fork has the base of that fork",
    "doctor --certify x": "a file is written with --json only (mudroom doctor --certify --json x)",
    "approve --follow x": "--follow asks on a terminal, about all that comes (mudroom approve --follow)",
    "approve --preset --deny abc": "--preset allows, and --deny does not (mudroom net deny @NAME denies a preset)",
    "vault export f - --json": "--json and the archive both go to stdout (mudroom vault export f -)",
    # too few or too many words
    "ps --output": "ps --output takes one ID, 0 given (mudroom ps --output ID; mudroom ps lists them)",
    "ps --end": "ps --end takes either IDs or --all (mudroom ps --end ID, or mudroom ps --end --all)",
    "try ls x": "try ls takes no name, 1 given (mudroom try --help)",
    "try show": "try show takes 1 to 2 names, 0 given (mudroom try --help)",
    "fork ls a": "fork ls takes no name, 1 given (mudroom fork --help)",
    "fork rename f": "fork rename takes 2 names, 1 given (mudroom fork --help)",
    "fork new now": "now cannot be the name of a fork: it has another meaning in mudroom diff (choose another name)",
    "net allow a.mudroom.internal": "forks reach each other with the consent of both "
    "(mudroom net reach a:8000 --fork NAME)",
    "fork rm": "no fork was named (mudroom fork rm NAME)",
    "image build x": "image build takes no name, 1 was given (mudroom image --help)",
    "net open x": "net open takes one port (mudroom net open 3000)",
    "vault ls a b": "vault ls takes 0 to 1 word, 2 given (mudroom vault --help)",
    # values that cannot be
    "run --read /no/such -- true": "--read /no/such: no such file or directory (give a path of this machine)",
    "run --memory 1 -- true": "--memory is '1' (at least 4 MiB: with less, nothing can run)",
    "try --jobs 0 -- true": "--jobs 0: at least one runs at a time (leave it out, or --jobs 1)",
    "try --until 0 -- true": "--until 0: at least one has to pass (leave it out, or --until 1)",
    "try -n -1 -- true": "-n -1 is not a number of attempts (mudroom try -n 8 -- COMMAND)",
    "try -n 0 -- true": "a try of no attempts has no result (mudroom try -n 8 -- COMMAND)",
    "try -n two -- true": "-n 'two' is not a whole number (mudroom try --help)",
    'try --judge "a \'b" -- true': "--judge a 'b: No closing quotation (close the quote)",
    "try --score json -- true": "the score json is printed by a judge, and none is named (--judge 'COMMAND whose last",
    "try --combine -- true": "a combination is chosen by a judge, and none is named (--judge 'pytest -q')",
    "try --from @x -- true": "a checkpoint was named without its fork (--from FORK@CHECKPOINT)",
    "log -n -3": "-n -3 is not a number of events (a number from 0 on; 0: all)",
    "log verify --against x": "--against 'x' is not an event with its digest (NUMBER:DIGEST, as mudroom log",
    "exec --env 1x -- true": "--env 1x: your environment has no such variable (--env NAME=VALUE sets one)",
    # names of nothing
    "diff now base": "now and base can only be compared through a fork (name one: mudroom diff FORK now)",
    "try show t9": "there is no try named t9 (mudroom try ls shows the tries of this project)",
    "ps --end nosuch": "there is no background command nosuch (mudroom ps --all shows those of this project)",
    "net open 3000": "no command with a network of its own is running (start the server first: mudroom run --",
    "approve abc": "there is no question abc (mudroom approve lists the waiting questions)",
}
"""A line, in a project with a fork ``f``, and its message, of one line; nothing changes."""


def environ_of(place: Place) -> dict[bytes, bytes]:
    variables = {"HOME": place.home, "MUDROOM_STATE": place.state, "PATH": "/usr/bin:/bin", "MUDROOM_KEEPER": "0"}
    return {os.fsencode(name): os.fsencode(str(value)) for name, value in variables.items()}


Told = Callable[[Mapping[str, str]], None]


@pytest.fixture
def all_told(place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Told:
    """Assert that each line, in a project with a fork ``f``, has its message, of one line, and changes nothing."""
    place.write("a", "1\n")
    monkeypatch.chdir(place.project)
    environ = environ_of(place)
    assert run(["fork", "new", "f"], environ) == 0
    return lambda lines: _all_told(lines, place, environ, capfd)


def _all_told(
    lines: Mapping[str, str], place: Place, environ: dict[bytes, bytes], capfd: pytest.CaptureFixture[str]
) -> None:
    capfd.readouterr()
    problems = []
    for line, told in lines.items():
        code = run(shlex.split(line), environ)
        said = [row for row in capfd.readouterr().err.splitlines() if not row.startswith("note: ")]
        if code not in (125, 127) or len(said) != 1 or told not in said[0] or not said[0].startswith("mudroom: "):
            problems.append(f"{line}: {code} {said}")
    assert not problems, "\n".join(problems)
    assert sorted(path.name for path in place.project.iterdir()) == ["a"]


def test_wrong_lines(all_told: Told) -> None:
    all_told(LINES)


POLICIES = {
    "include: x.yaml\n": "p:1: include: this file cannot include others",
    "roles: {a b: {}}\n": "p:1: a b is no name for a role (letters, digits, - and _)",
    "agents: {coder: [1]}\n": "agents.coder is [1] (write the name of a role)",
    "? [a]\n: b\n": "p:1: a key must be a plain text",
    "run: [1]\n": "must hold keys with values",
    "run: {view: cloud}\n": "run.view is 'cloud' (allowed: ",
    "run: {timeout: 999999d}\n": "run.timeout is '999999d' (at most a hundred years: 36600d)",
    "levels: {allow: 1}\n": "levels.allow must be a list of levels ([1, 2] permits no level 0)",
    "copy: {gitignore: maybe}\n": "copy.gitignore is 'maybe' (allowed: true, false)",
    "container: {image: 1}\n": "container.image: 1 is not the name of an image (write host, or a name as",
    "credentials: {show: [/etc/x]}\n": "credentials.show: /etc/x is not a file of the home (write it as ~/.netrc)",
    "verify: {command: ''}\n": "verify.command is empty (write a command: \"make test\", or [make, test])",
    "limits: {memory: 1}\n": "limits.memory is 1 (at least 4 MiB: with less, nothing can run)",
    "network: {inspect: [[a]]}\n": "network.inspect: a host, or keys with values",
    "network: {forks: {show: [x]}}\n": "'x': x is no port (1 to 65535) (show: [8000, 8000/http, reviewer:8000])",
    "commands: {rules: [{pattern: 1, action: deny}]}\n": "is 1 (write the first words of a command: git push --force)",
    "commands: {rules: [{pattern: [[1]], action: deny}]}\n": "a word is a text, or a list of texts (numbers and",
    "commands: {rules: [{pattern: a, action: maybe}]}\n": "is 'maybe' (allowed: allow, ",
    "commands: {rules: [{pattern: a, action: deny, exact: 1}]}\n": "is 1 (allowed: true, false)",
    "commands: {rules: [{pattern: \"a 'b\", action: deny}]}\n": "a 'b: ",
}  # fmt: skip


def test_wrong_policies() -> None:
    refused(POLICIES.items(), lambda text: parse(text.encode(), "p"))
    folder = PolicyFolder({b"x": b"include: y\n", b"y": b"include: x\n"}.get)
    includes = {
        "include: [1]\n": "p:1: include must be the name of a file, or a list of names",
        "include: a/b\n": "p:1: include: a/b is not a file name in the same directory (write the name without a path)",
        "include: x\n": "files include each other: ",
    }
    refused(includes.items(), lambda text: parse(text.encode(), "p", folder))
    answers = {
        'allow: ["a \'b"]\n': "p:1: allow: ",
        "allow: ['" + "a " * 300 + "']\n": "p:1: allow: a command has 1 to ",
    }
    refused(answers.items(), lambda text: command_answers.parse(text.encode(), "p"))


def refused(rows: Iterable[tuple[Any, str]], act: Callable[[Any], object]) -> None:
    """Each first value raises an error of one line with the second in it."""
    problems = []
    for given, told in rows:
        try:
            act(given)
            said = "nothing"
        except MudroomError as error:
            said = str(error)
        if told not in said or "\n" in said:
            problems.append(f"{str(given)[:60]!r}: {said}")
    assert not problems, "\n".join(problems)


def test_wrong_files(place: Place) -> None:
    """A state directory that is not one's own."""
    link, plain, shared = place.root / "link", place.root / "plain", place.root / "shared"
    link.symlink_to(place.home)
    plain.write_text("")
    shared.mkdir(mode=0o777)
    shared.chmod(0o777)
    (shared / "theirs").write_text("")
    states = (
        (link, f"link is a symbolic link (MUDROOM_STATE={place.home} names its target)"),
        (plain, "plain is not a directory (set MUDROOM_STATE to a directory of your own)"),
        (
            shared,
            f"is open to other users (mode 0777), and holds theirs, which is not mudroom's (MUDROOM_STATE={shared}/",
        ),
    )
    refused(states, lambda path: require_private(os.fsencode(path)))
    theirs = place.root / "theirs"
    theirs.mkdir()
    try:
        os.chown(theirs, 65534, -1)
    except PermissionError:  # an ordinary user
        theirs = Path("/usr")
    refused([(theirs, f"{theirs} belongs to another user (uid ")], lambda path: require_private(os.fsencode(path)))


def test_wrong_arguments_of_the_library(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write("a", "1\n")
    environ = {"HOME": str(place.home), "MUDROOM_STATE": str(place.state), "PATH": "/usr/bin:/bin"}

    def opened(**given: Any) -> None:
        with mudroom.open(given.pop("project", place.project), environ=environ, **given):
            pass

    options: list[tuple[dict[str, Any], str]] = [
        ({"project": 7}, 'the project is 7, not a path (mudroom.open(".") is the project in the working directory)'),
        ({"project": ""}, 'the project is an empty path (write "." for the working directory)'),
        ({"project": "a\0b"}, "the project holds a NUL character, which no program or file name can have"),
        ({"level": 7}, "level is 7 (0: no isolation, 1: OS sandbox, 2: container)"),
        ({"network": "wide"}, "network is 'wide' (write one of: 'gate', 'none', 'open')"),
        ({"allow": ["a b"]}, '(allow=["pypi.org", "*.example.com:8443"])'),
        ({"read": ["/no/such"]}, "read: '/no/such': no such file or directory"),
        ({"ask": 7}, "ask is 7 (write a function of a question that returns True or False,"),
        ({"limits": {"luck": 1}}, "there is no limit 'luck' (write one of: "),
    ]
    refused(options, lambda given: opened(**given))
    refused([(7, 'a fork is named by a text, not 7 (fork="a", or None for a new one)')], name_of)
    refused([(None, "no fork was named (room.forks() lists them)")], required_name)
    refused([(7, 'paths is 7, not a path or a list of paths (paths=["src"])')], lambda paths: paths_of(paths, b"/p"))
    with mudroom.open(place.project, environ=environ) as room:
        refused(
            [(room, "a room cannot be pickled, nor its forks and commands: they hold a sandbox of this")], pickle.dumps
        )
        refused(
            [("now", "at is for a fork of a fork (name the fork of the checkpoint: parent=…)")],
            lambda at: room.fork("f", at=at),
        )
        refused([("", "attempts take a command with its number, or commands (attempts(")], lambda _x: room.attempts())
        refused([("x", "n is 'x', not a number of attempts (n=4)")], lambda n: room.attempts("true", n))
    with mudroom.open(place.project, environ=environ) as room:
        fork = room.fork("f")
        refused([("(", "not a regular expression: ")], fork.search)
        refused([("zz", "a: the old text is not in it")], lambda old: fork.edit("a", old, "y"))
    gone = place.root / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    refused(
        [(".", "the working directory does not exist any more (os.chdir to one that does)")],
        mudroom.open,
    )


def test_wrong_lines_about_conflicts_and_checkpoints(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In a project whose file both sides have changed."""
    place.write("a.txt", "1\n")
    place.write("gone", "1\n")
    variables = {"HOME": str(place.home), "MUDROOM_STATE": str(place.state), "PATH": "/usr/bin:/bin"}
    with mudroom.open(place.project, environ=variables) as room:
        fork = room.fork("f")
        fork.write("a.txt", "theirs\n")
        fork.delete("gone")
    place.write("a.txt", "ours\n")
    place.write("gone", "ours\n")
    marked = place.write("driver", '#!/bin/sh\nprintf "<<<<<<< a\\n=======\\n>>>>>>> b\\n" > "$2"\n', mode=0o755)
    state = str(place.state)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{place.root}/socket")
    lines = {
        "resolve f a.txt --tool no-such-driver": "there is no merge driver no-such-driver (install it, or",
        "resolve f a.txt --tool true": "the merge driver 'true' is not told the files (a command with %O %A %B)",
        "resolve f gone --tool 'true %A %B'": "gone: a merge driver needs a file on both sides (--mine or",
        "resolve f gone --hunk 1 --mine": "gone cannot be merged in parts: ",
        f"resolve f a.txt --tool '{marked} %O %A %B'": "left conflict markers in a.txt (nothing was decided;",
        "resolve f b --mine": "the fork has no change at b (mudroom diff shows what it has)",
        f"run --read {place.root}/socket -- true": "is a socket: a command that connects to it can do",
        f"run --read {state} -- true": "cannot be shown to commands: mudroom's own state lies in it (",
        "log verify --fork f": "mudroom log verify has no --fork (it is an option of mudroom log",
    }
    monkeypatch.chdir(place.project)
    monkeypatch.setattr("tempfile.tempdir", str(place.root))  # the text of the driver is kept there
    problems = []
    for line, told in lines.items():
        code = run(shlex.split(line), environ_of(place))
        said = capfd.readouterr().err
        if code != 125 or told not in said or "Traceback" in said:
            problems.append(f"{line}: {code} {said}")
    assert not problems, "\n".join(problems)
    assert (place.project / "a.txt").read_text() == "ours\n"


def test_wrong_places(place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The project, the state and the files of the user are not as they have to be."""
    environ = environ_of(place)

    def told(line: str, **changed: str) -> str:
        more = {os.fsencode(name): os.fsencode(value) for name, value in changed.items()}
        assert run(shlex.split(line), {**environ, **more}) in (1, 125), line
        return capfd.readouterr().err

    place.write("a", "1\n")
    monkeypatch.chdir(place.project)
    inside = f"{place.project}/state"
    assert f"mudroom's own state ({inside}) lies in the project" in told("ls", MUDROOM_STATE=inside)
    assert "the project cannot be" in told(f"ls --project {place.root}")
    assert "does not exist" in told("ls --project /no/such")
    gone = place.root / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert "the current directory does not exist any more (cd to one that does)" in told("ls")


def test_wrong_arguments_inside() -> None:
    """Of front doors to the session: they check them, too, and so do these."""
    attempt = AttemptRequest(((b"true",),))
    requests: list[tuple[AttemptRequest, str]] = [
        (attempt._replace(commands=((b"true",),) * 1001), "1,001 attempts are more than the 1,000 of one try"),
        (attempt._replace(score="luck"), "there is no score 'luck' (write one of: exit, "),  # type: ignore[arg-type]
        (attempt._replace(jobs=-1), "jobs -1, until 0: a number is negative"),
        (attempt._replace(budget=0.0), "the budget is no time at all: no attempt could run (--budget 30m)"),
        (attempt._replace(at="x"), "a checkpoint was named without its fork (--from FORK@CHECKPOINT)"),
    ]
    refused(requests, checked)
    appearances = (
        ((b"/p", b"/h", b"/p/state"), "a project cannot appear at /p: mudroom's own state is in it"),
        ((b"/p", b"/p/h", b"/s"), "a project cannot appear at /p: the home /p/h is in it"),
        ((b"p", b"/h", b"/s"), "a project cannot appear at p: it is not absolute"),
    )
    refused(appearances, lambda paths: require_appearance(*paths))
    refused([(mudroom.aopen("/"), "this room is not open yet (async with mudroom.aopen(…) as room,")], closed_early)


def closed_early(room: mudroom.AsyncRoom) -> None:
    asyncio.run(room.close())


def test_damaged_files(place: Place) -> None:
    """Of mudroom's own, which a full disk or another version may leave."""
    question = place.root / "question"
    question.mkdir()
    (question / "decided").write_bytes(b"{")
    refused(
        [(question, "/decided is damaged, or of another version of mudroom")],
        lambda path: decision_at(os.fsencode(path)),
    )
