"""What runs, as the page is told: commands, their output as it comes, their end, and what they use."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from asking import Asked

from conftest import Place
from mudroom.ext.web.api.watch import _text
from mudroom.session import Stdio
from mudroom.vault import disk_usage
from mudroom.vault.forks.background import Ring, StreamPart, read_part


@pytest.fixture
def ask(place: Place) -> Asked:
    place.write("a.txt", "one\n")
    return Asked(place)


def started(ask: Asked, script: str, fork: str = "f", **more: Any) -> tuple[str, Any]:
    """The path of the project's endpoints, and the command."""
    at = ask.at
    ask.post(at + "/forks", {"name": fork})
    return at, ask.post(f"{at}/forks/{fork}/commands", {"command": ["sh", "-c", script], **more})


def test_a_command_from_its_start_to_its_end(ask: Asked) -> None:
    at, row = started(ask, "echo here; echo there >&2; exec sleep 60")
    try:
        assert (row["state"], row["fork"], row["level"]) == ("running", "f", 1)
        (listed,) = ask.get(at + "/commands")["commands"]
        assert listed["id"] == row["id"]
        found = until(ask, at, row["id"], lambda one: "there" in one["stderr"] and "here" in one["stdout"])
        assert (found["stdout"], found["stderr"], found["ended"]) == ("here\n", "there\n", False)
        again = ask.get(f"{at}/commands/{row['id']}/output", stamp=found["stamp"])
        assert (again["changed"], again["stdout"], again["stdout_before"]) == (False, "", None)
        assert ask.get(at + "/usage", disk="false")["processes"] >= 1
    finally:
        over = ask.post(f"{at}/commands/{row['id']}/end", {"grace": 1})
    assert (over["state"], over["exit_code"]) == ("ended", 143)
    assert ask.get(at + "/commands")["commands"] == []
    assert [one["id"] for one in ask.get(at + "/commands", all="true")["commands"]] == [row["id"]]
    assert ask.get(f"{at}/commands/{row['id']}/output")["ended"] is True
    assert ask.post(f"{at}/commands/{row['id']}/end")["exit_code"] == 143  # ending twice is no error


def test_two_that_start_at_once_run_side_by_side(ask: Asked) -> None:
    """The second does not wait for the end of the first."""
    at, row = started(ask, "true")
    ask.place.session().background(row["id"]).wait()
    for _time in range(3):
        rows: list[Any] = []

        def start(rows: list[Any] = rows) -> None:
            rows.append(ask.post(at + "/forks/f/commands", {"command": ["sleep", "1000"]}))

        threads = [threading.Thread(target=start, daemon=True) for _one in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        late = any(thread.is_alive() for thread in threads)
        for one in rows:
            ask.post(f"{at}/commands/{one['id']}/end", {"grace": 0})
        assert not late and len(rows) == 2


@pytest.mark.parametrize("name", ["json.py", "mudroom.py", "mudroom/__init__.py", "mudroom/__main__.py", "signal.py"])
def test_no_module_of_the_project_is_loaded_outside_of_the_sandbox(ask: Asked, name: str) -> None:
    """A stranger's project may have modules with the names of those that mudroom and Python import."""
    ran = ask.place.root / "ran"
    ask.place.write(name, f"open({str(ran)!r}, 'a').write(__name__)\n")
    at, row = started(ask, "exec sleep 60")
    ask.post(f"{at}/commands/{row['id']}/end", {"grace": 0})
    assert not ran.exists(), ran.read_text()


def test_nor_by_an_entry_of_pythonpath_that_is_not_absolute(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory that the server was started in is not the project's."""
    monkeypatch.setattr(sys, "path", ["", "src", *sys.path])  # those of the server's commands
    ask, ran = Asked(place), place.root / "ran"
    for name in ("json.py", "src/json.py"):
        place.write(name, f"open({str(ran)!r}, 'a').write(__name__)\n")
    at, row = started(ask, "pwd; exec sleep 60")
    found = until(ask, at, row["id"], lambda one: "\n" in one["stdout"])
    ask.post(f"{at}/commands/{row['id']}/end", {"grace": 0})
    assert not ran.exists(), ran.read_text()
    assert found["stdout"] == f"{place.project}\n"


def until(ask: Asked, at: str, identity: str, true: Any) -> Any:
    """The output, once it is like that."""
    session = ask.place.session()
    while not true(found := ask.get(f"{at}/commands/{identity}/output")):
        session.background(identity).wait(0.02)
    return found


def test_what_the_disk_holds_by_kind(ask: Asked) -> None:
    found = ask.get(ask.at + "/usage")
    assert {"forks", "layers", "journal"} <= {one["what"] for one in found["amounts"]}
    assert found["total"] == sum(one["size"] for one in found["amounts"])


def test_what_the_disk_holds_takes_one_walk(ask: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    ask.place.session().run([b"sh", b"-c", b"mkdir -p a/b && touch a/b/c"])
    walked: list[tuple[int, bytes]] = []

    def walking(root: int, at: bytes, seen: set[tuple[int, int]], pending: list[bytes]) -> int:
        walked.append((os.fstat(root).st_ino, at))
        return measured(root, at, seen, pending)

    measured = disk_usage._measure_directory
    monkeypatch.setattr(disk_usage, "_measure_directory", walking)
    ask.get(ask.at + "/usage")
    assert len(walked) == len(set(walked)) > 3


def test_output_that_is_no_text(ask: Asked) -> None:
    at, row = started(ask, r"printf '<b>\033[31m\377\342\200\256 \0end'")
    ask.place.session().background(row["id"]).wait()
    found = ask.get(f"{at}/commands/{row['id']}/output")
    assert found["stdout"] == "<b>\x1b[31m\ufffd\u202e \0end"


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"command": []}, "no command"),
        ({"command": [""]}, "no command"),
        ({"command": ["a\0b"]}, "NUL"),
        ({"command": ["true"], "timeout": 0}, "time limit"),
        ({"command": ["true"], "timeout": -1e9}, "time limit"),
        ({"command": "true"}, "array"),
        ({"command": ["true"], "more": 1}, "more"),
    ],
)
def test_what_is_no_command(ask: Asked, body: Any, word: str) -> None:
    at = ask.at
    ask.post(at + "/forks", {"name": "f"})
    status, code, text = ask.refused("POST", at + "/forks/f/commands", body)
    assert (status, code) == (400, "bad-request")
    assert word in text


def test_what_is_not_there(ask: Asked) -> None:
    at = ask.at
    assert ask.refused("POST", at + "/forks/none/commands", {"command": ["true"]})[:2] == (404, "not-found")
    assert ask.refused("GET", at + "/commands/00000000/output")[:2] == (404, "not-found")
    assert ask.refused("POST", at + "/commands/..%2f/end", {})[:2] == (404, "not-found")
    assert ask.refused("GET", "/projects/none/commands")[:2] == (404, "not-found")
    ask.post(at + "/forks", {"name": "f"})
    row = ask.post(at + "/forks/f/commands", {"command": ["no-such-program"]})
    ended = ask.place.session().background(row["id"]).wait()
    assert ended is not None
    assert ended.exit_code == 127


def test_one_in_the_foreground_is_told_and_nothing_is_started_beside_it(ask: Asked) -> None:
    at = ask.at
    ask.post(at + "/forks", {"name": "f"})
    session, go = ask.place.session(), ask.place.root / "go"
    os.mkfifo(go)
    descriptor = os.open(go, os.O_RDWR)
    with os.fdopen(descriptor, "r+b", buffering=0) as stdin:
        running = threading.Thread(
            target=session.run, args=([b"head", b"-c1"],), kwargs={"fork": "f", "stdio": Stdio(stdin=stdin.fileno())}
        )
        running.start()
        while not (found := ask.get(at + "/commands")["commands"]):
            running.join(0.02)
        assert (found[0]["state"], found[0]["id"], found[0]["command"]) == ("foreground", "", "head -c1")
        status, code, text = ask.refused("POST", at + "/forks/f/commands", {"command": ["true"]})
        assert (status, code) == (409, "busy")
        assert "head -c1" in text
        stdin.write(b"x")
        running.join()


def test_what_one_in_the_foreground_prints_is_seen_while_it_runs_and_after(ask: Asked) -> None:
    at = ask.at
    ask.post(at + "/forks", {"name": "f"})
    where = at + "/forks/f/output"
    assert ask.get(where) | {"stamp": ""} == {
        "id": "", "stdout": "", "stderr": "", "ended": True, "stamp": "", "changed": True, "stdout_before": 0,
        "stderr_before": 0,
    }  # fmt: skip
    session = ask.place.session()
    heard: list[Any] = []
    script = b"echo begun; echo odd >&2; read line; echo done"
    read, write = os.pipe()
    with os.fdopen(write, "wb", buffering=0) as go, os.fdopen(read, "rb") as stdin:
        stdio = Stdio(stdin=stdin.fileno(), on_output=lambda name, data: heard.append((name, data)))
        running = threading.Thread(
            target=session.run, args=([b"sh", b"-c", script],), kwargs={"fork": "f", "stdio": stdio}
        )
        running.start()
        while not ((found := ask.get(where))["stdout"] and found["stderr"]):
            running.join(0.02)
        assert (found["stdout"], found["stderr"], found["ended"]) == ("begun\n", "odd\n", False)
        go.write(b"x\n")
        running.join()
    after = ask.get(where, stamp=found["stamp"])
    assert (after["stdout"], after["stdout_before"], after["ended"]) == ("done\n", None, True)
    assert [data for name, data in heard if name == "stdout"] == [b"begun\n", b"done\n"]
    (row,) = ask.get(at + "/commands", all="true", fork="f")["commands"]
    assert (row["id"], row["state"], row["exit_code"]) == ("", "ended", 0)
    session.run([b"true"], fork="f")
    assert ask.get(where)["stdout"] == ""
    assert ask.get(at + "/commands", all="true", fork="f")["commands"] == []


def test_a_full_disk_is_no_reason_not_to_run(ask: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_self: Ring, _data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Ring, "write", full)
    result = ask.place.session().run([b"sh", b"-c", b"echo one; sleep 0; echo two"])
    assert (result.exit_code, result.stdout) == (0, b"one\ntwo\n")


# --- a ring, read again and again ---


def test_a_ring_is_read_without_a_gap_or_a_byte_twice(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path / "stdout")
    ring = Ring(path, 100)
    told, mark = b"", ""
    for number in range(200):
        ring.write(b"%06d\n" % number)
        if number % 7 == 0:
            part = read_part(path, mark, 1000)
            assert part.before == (0 if not mark else None)
            told, mark = told + part.data, part.mark
    told += read_part(path, mark, 1000).data
    ring.close()
    assert told == b"".join(b"%06d\n" % number for number in range(200))


@pytest.mark.parametrize("mark", ["", "x", "-1", "1e9", "9" * 30, "99999", "\x00", "\u0663"])
def test_a_mark_that_is_none_gets_the_end(tmp_path: Path, mark: str) -> None:
    path = os.fsencode(tmp_path / "stdout")
    ring = Ring(path, 100)
    ring.write(b"x" * 950 + b"y" * 30)
    ring.close()
    assert read_part(path, mark, 40) == (b"x" * 10 + b"y" * 30, "980", 940)
    assert read_part(path, mark, 1000)[1:] == ("980", 800)


def test_a_mark_that_is_too_long_ago_gets_the_end(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path / "stdout")
    ring = Ring(path, 100)
    ring.write(b"a" * 50)
    mark = read_part(path, "", 1000).mark
    ring.write(b"b" * 500)  # it was rolled over several times, and inodes are used again
    ring.close()
    assert mark == "50"
    assert read_part(path, mark, 1000) == (b"b" * 150, "550", 400)
    assert read_part(path, "550", 1000) == (b"", "550", None)


def test_a_ring_that_is_written_to_meanwhile(tmp_path: Path) -> None:
    path, many = os.fsencode(tmp_path / "stdout"), 20_000

    def write() -> None:
        ring = Ring(path, 4096)
        for number in range(many):
            ring.write(b"%07d\n" % number)
        ring.close()

    writing = threading.Thread(target=write)
    writing.start()
    mark, end = "", b"%07d\n" % (many - 1)
    last = b""
    while last != end:
        part = read_part(path, mark, 4096)
        position = int(part.mark or 0) - len(part.data)
        lines = part.data[-position % 8 :].split(b"\n")[:-1]
        assert all(int(line) == (position + 7) // 8 + i for i, line in enumerate(lines))  # every byte where it belongs
        mark = part.mark
        last = part.data[-8:] or last
    writing.join()


def test_a_character_is_never_cut_in_two() -> None:
    assert _text(StreamPart("aé".encode()[:2], "2", 0), False) == ("a", "1")
    assert _text(StreamPart("aé".encode()[:2], "2", 0), True) == ("a\ufffd", "2")
    assert _text(StreamPart("é€".encode()[1:], "9", 5), False) == ("€", "9")
