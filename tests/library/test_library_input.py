"""Bad input to the library: each an error that says what was given and what to write instead; nothing is lost."""

from __future__ import annotations

import gc
import os
import pickle
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import mudroom
from conftest import Place
from mudroom import errors
from mudroom.errors import UsageError
from rooms import LONG, environ_of, open_room, processes_with


@pytest.fixture
def room(place: Place) -> Iterator[mudroom.Room]:
    with open_room(place) as room:
        yield room


def error_of(call: Callable[[], object]) -> str:
    with pytest.raises(UsageError) as raised:
        call()
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("project", "message"),
    [
        (None, 'the project is None, not a path (mudroom.open(".") is the project in the working directory)'),
        (7, "the project is 7, not a path"),
        ("", 'the project is an empty path (write "." for the working directory)'),
        ("a\0b", "the project holds a NUL character"),
        ("\ud800", "the project holds half a character at 0"),
        ("/", "the project cannot be /"),
        ("{home}", "your home directory is in it"),
        ("{root}", "your home directory is in it"),
        ("{root}/nowhere", "does not exist"),
        ("{home}/file", "is not a directory"),
    ],
)
def test_a_project_that_is_none(place: Place, project: Any, message: str) -> None:
    (place.home / "file").write_text("")
    given = project.format(home=place.home, root=place.root) if isinstance(project, str) else project
    assert message in error_of(lambda: mudroom.open(given, environ=environ_of(place)))


@pytest.mark.parametrize("kind", [str, os.fsencode, Path])
def test_a_project_is_str_bytes_or_path(place: Place, kind: Callable[[Path], Any]) -> None:
    with mudroom.open(kind(place.project), environ=environ_of(place)) as room:
        assert (room.project, room.run("pwd").stdout) == (str(place.project), f"{place.project}\n")


def test_a_project_relative_to_the_working_directory(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place.root)
    with mudroom.open("project", environ=environ_of(place)) as room:
        assert room.project == str(place.project)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"agent": 3}, "agent is 3, not a name"),
        ({"agent": ""}, "agent is '', not a name"),
        ({"ask": "terminal"}, "ask is 'terminal' (write a function"),
        ({"level": 3}, "level is 3"),
        ({"level": True}, "level is True"),
        ({"network": "off"}, "network is 'off' (write one of: 'gate', 'none', 'open')"),
        ({"view": "fast"}, "view is 'fast'"),
        ({"allow": "pypi.org"}, "allow is 'pypi.org', not a list of hosts (allow=[\"pypi.org\"])"),
        ({"allow": ["https://pypi.org/x"]}, "this is a URL; write the host alone: pypi.org"),
        ({"allow": [3]}, "allow: "),
        ({"allow": ["169.254.169.254"]}, "no rule opens that"),
        ({"limits": {"memory": "much"}}, "limits['memory'] is"),
        ({"limits": {"ram": "1G"}}, "there is no limit 'ram' (write one of: memory, processes"),
        ({"timeout": 0}, "timeout is 0: no command can end in that"),
        ({"output_limit": 0}, "output_limit is 0, not a number of bytes"),
        ({"env": ["A=1"]}, "env is ['A=1'], not a mapping"),
        ({"env": {"A": 1}}, "env['A'] is 1 (int), not a text (write '1')"),
        ({"env": {"A=B": "1"}}, "'A=B' is not a name of a variable"),
        ({"read": ["/no/such/path"]}, "no such file or directory"),
    ],
)
def test_options_of_open(place: Place, options: dict[str, Any], message: str) -> None:
    assert message in error_of(lambda: mudroom.open(place.project, environ=environ_of(place), **options))


def test_a_broken_policy_is_named(place: Place) -> None:
    place.write(".mudroom/policy.yaml", "network: {mod: none}\n")
    assert "policy.yaml:1: there is no setting network.mod" in error_of(lambda: open_room(place))


def test_a_policy_that_is_not_trusted_is_in_the_notes(place: Place) -> None:
    place.write(".mudroom/policy.yaml", "network: {mode: open}\n")
    with open_room(place) as room:
        assert len(room.notes) == 1 and "network.mode: open" in room.notes[0]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("", "the command is empty"),
        ("  \n", "the command is empty"),
        ([], "the command is an empty list"),
        ([""], "the first word of the command is empty"),
        (None, "a command is a line or a list, not NoneType: None"),
        (b"make", "a command is a line or a list, not bytes: b'make'"),
        (Path("make"), "a command is a line or a list, not PosixPath"),
        ({"make"}, "a command is a line or a list, not set"),
        (["sleep", 8], "word 2 of the command is 8 (int), not a text (write '8')"),
        (["x", None], "word 2 of the command is None"),
        (["a\0b"], "word 1 of the command holds a NUL character"),
        ("a\0b", "the command holds a NUL character"),
        (["\ud800"], "holds half a character"),
    ],
)
def test_a_command_that_is_none(room: mudroom.Room, command: Any, message: str) -> None:
    for call in (room.run, room.stream, room.start):
        assert message in error_of(lambda call=call: call(command))  # type: ignore[misc]
    assert room.forks() == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timeout": 0}, "timeout is 0: no command can end in that (timeout=60, or None for no limit)"),
        ({"timeout": -1}, "timeout is -1"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"timeout": float("inf")}, "timeout is inf"),
        ({"timeout": "60s"}, "timeout is '60s', not a number of seconds"),
        ({"timeout": True}, "timeout is True, not a number"),
        ({"fork": "a/b"}, "a/b"),
        ({"fork": "../x"}, "../x"),
        ({"fork": ""}, "a fork is named by a text, not ''"),
        ({"fork": 3}, "a fork is named by a text, not 3"),
        ({"fork": "x" * 65}, "xxx"),
        ({"cwd": ".."}, "cwd is '..', which is not in the project"),
        ({"cwd": "/etc"}, "cwd is '/etc', which is not in the project"),
        ({"input": 3}, "input is int, not a text or bytes"),
        ({"env": {"": "x"}}, "'' is not a name of a variable"),
    ],
)
def test_options_of_a_command(room: mudroom.Room, options: dict[str, Any], message: str) -> None:
    assert message in error_of(lambda: room.run(["true"], **options))
    assert room.forks() == []


def test_paths_that_lead_out(room: mudroom.Room) -> None:
    fork = room.fork("a")
    for path in ("/etc/passwd", "../x", "", "a/../../x"):
        error_of(lambda path=path: fork.read(path))  # type: ignore[misc]
        error_of(lambda path=path: fork.write(path, "x"))  # type: ignore[misc]
        error_of(lambda path=path: room.apply("a", [path]))  # type: ignore[misc]
    assert "paths is 3" in error_of(lambda: room.diff("a", 3))  # type: ignore[arg-type]


def test_a_directory_that_the_fork_does_not_have(room: mudroom.Room) -> None:
    """Also one that is there in the project; the fork's second command goes another way than its first."""
    for _times in range(2):
        expected = f"the command cannot work in {room.project}/gone: No such file or directory"
        assert expected in error_of(lambda: room.run("true", fork="a", cwd="gone"))
        assert room.run("true", fork="a").ok


@pytest.mark.parametrize("content", [5, None, ["x"], True])
def test_content_that_is_no_text(room: mudroom.Room, content: Any) -> None:
    """bytes(5) is five NUL characters."""
    fork = room.fork("a")
    kind = type(content).__name__
    assert f"the content is {kind}, not a text or bytes" in error_of(lambda: fork.write("x", content))
    assert not fork.exists("x")
    fork.write("x", bytearray(b"1"))  # type: ignore[arg-type]
    assert fork.read("x") == "1"


def test_a_closed_room_says_so(place: Place) -> None:
    room = open_room(place)
    fork = room.fork("a")
    fork.write("x", "1")
    server = room.start(f"sleep {LONG}", fork="b")
    room.close()
    room.close()
    assert processes_with(LONG) == []
    calls: list[Callable[[], object]] = [
        lambda: room.run("true"), lambda: room.stream("true"), lambda: room.start("true"), lambda: fork.read("x"),
        lambda: fork.run("true"), room.forks, lambda: room.apply("a"), server.output, server.poll, room.journal,
    ]  # fmt: skip
    for call in calls:
        assert f"this room on {place.project} is closed (open it again: mudroom.open(" in error_of(call)
    assert repr(room) == f"<mudroom room on {place.project} (closed)>"
    with open_room(place) as again:
        assert again.fork("a").read("x") == "1", "closing has written it"


def test_closing_ends_the_commands_of_other_threads(place: Place) -> None:
    room = open_room(place)
    started, results = threading.Event(), list[mudroom.RunResult]()
    thread = threading.Thread(
        target=lambda: results.append(
            room.run(f"echo x > made; echo up; exec sleep {LONG}", fork="a", on_output=lambda _chunk: started.set())
        )
    )
    thread.start()
    assert started.wait(20)
    room.close()
    thread.join()
    assert (results[0].signal, results[0].changes.paths) == (15, ["made"])
    assert processes_with(LONG) == []


def test_a_room_that_is_forgotten_is_closed(place: Place) -> None:
    open_room(place).start(f"exec sleep {LONG}", fork="a")
    gc.collect()
    assert processes_with(LONG) == []


def test_a_callback_cannot_call_its_room(room: mudroom.Room) -> None:
    """It would wait for its own command."""
    said: list[str] = []

    def hear(_chunk: mudroom.OutputChunk) -> None:
        said.append(error_of(lambda: room.apply("a")))
        said.append(error_of(room.close))

    assert room.run("echo x", fork="a", on_output=hear).ok
    assert [text.partition(" (")[0] for text in said] == [
        "a callback of a running command cannot call its own room",
        "a room cannot be closed from within its own call",
    ]


CHILD = """
import os, sys
import mudroom
room = mudroom.open(sys.argv[1])
room.fork("a").write("x", "from the parent")
pid = os.fork()
if not pid:
    try:
        room.run("true")
    except mudroom.UsageError as error:
        print(error, flush=True)
    room.close()
    sys.exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print(room.run("cat x", fork="a").stdout)
room.close()
"""


def test_a_child_process_cannot_use_its_parent_s_room(place: Place) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", CHILD, str(place.project)],
        env=environ_of(place), capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    first, second = done.stdout.splitlines()
    assert re.match(
        r"this room on .* was opened by process \d+, of which this is a child \(open the project here", first
    )
    assert (second, done.stderr, done.returncode) == ("from the parent", "", 0)


def test_a_room_is_not_pickled_and_its_values_are(room: mudroom.Room) -> None:
    for value in (room, room.fork("a")):
        assert error_of(lambda: pickle.dumps(value)) == (  # noqa: B023 - called at once
            "a room cannot be pickled, nor its forks and commands: they hold a sandbox of this process "
            f"(pass its project, and open it there: mudroom.open({str(room.project)!r}))"
        )
    result = room.run("echo x > made; exit 3", fork="a")
    assert pickle.loads(pickle.dumps(result)) == result
    applied = room.apply("a")
    assert pickle.loads(pickle.dumps(applied)) == applied
    with pytest.raises(mudroom.CommandFailed) as failed:
        result.check()
    copy = pickle.loads(pickle.dumps(failed.value))
    assert (str(copy), copy.result, copy.exit_code) == (str(failed.value), result, 3)


def test_every_error_is_pickled() -> None:
    made = [
        errors.MudroomError("m", "h"), errors.ForkExists("a"), errors.ForkGone("a"), errors.ForkMoved(b"p", "p"),
        errors.Unsupported("a", "b", "c", "d"), errors.CommandNotStarted("m", 127, "h"), errors.ContainerEnded("w"),
        errors.SideMoved(b"p", "p"), errors.DecidedMeanwhile(b"p", "p"), errors.Refused("m", "h"),
    ]  # fmt: skip
    for error in made:
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


def test_a_fork_is_no_directory(room: mudroom.Room) -> None:
    with pytest.raises(TypeError, match=r"with fork\.mount\(\) as path"):
        os.fspath(room.fork("a"))


def test_an_unknown_name_of_the_module() -> None:
    with pytest.raises(AttributeError, match="module 'mudroom' has no attribute 'opne'"):
        _ = mudroom.opne
    assert set(mudroom.__all__) <= set(dir(mudroom))
    for name in mudroom.__all__:
        assert getattr(mudroom, name) is not None
