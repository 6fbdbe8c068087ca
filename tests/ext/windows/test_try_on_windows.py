"""``mudroom try`` in a Windows Python: forks beside each other, judged by a program and by a line for cmd.exe, chosen,
applied, discarded. Run by ``dev/wine``."""

from __future__ import annotations

import _thread
import json
import sys
import threading
from typing import Any

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

from mudroom.ext.attempts.session.attempts import Attempts
from test_session_on_windows import Place, place

__all__ = ["place"]

NONE = ("--net", "none")
WRITES = ("--", "cmd", "/d", "/s", "/c", "echo %MUDROOM_ATTEMPT%,{i}>made.txt& del sub\\b.bin")
WAITS = ("--", "cmd", "/d", "/c", "echo x>made.txt& ping -n 60 127.0.0.1 >nul")


def tried(place: Place, *words: str) -> dict[str, Any]:
    said = place.say("try", "--json", *NONE, *words)
    assert said.err == "" and said.code in (0, 1, 124), said
    report: dict[str, Any] = json.loads(said.out)
    return report


def forks(place: Place) -> set[str]:
    return {row["fork"] for row in json.loads(place.say("ls", "--json").out)["forks"]}


def test_from_the_attempts_to_the_project(place: Place) -> None:
    """The judge is a program by its path, whose backslashes stay; each attempt sees its number, and its own copy."""
    (place.project / "judge.py").write_text(
        "print(open('made.txt').read())\nraise SystemExit(open('made.txt').read()[0] != '2')\n"
    )
    before = place.files()
    said = place.say("try", "-n", "2", *NONE, "--judge", f'"{sys.executable}" judge.py', *WRITES)
    assert said.code == 0 and "* 2 passed 0" in " ".join(said.out.split()), said
    assert "1: failed, judge 1" in said.err and place.files() == before
    assert "best t1-2" in place.say("try", "ls").out
    shown = place.say("try", "show", "t1", "2").out
    assert "2,2" in shown and "passed" in shown, shown
    assert place.say("apply", "--yes", "t1-2").code == 0
    assert place.files() == {name: data for name, data in before.items() if name != "sub/b.bin"} | {
        "made.txt": b"2,2\r\n"
    }
    assert "t1-1" in place.say("try", "discard", "t1").err and forks(place) == set()
    assert place.say("undo", "--yes").code == 0 and place.files() == before
    assert place.say("try", "discard", "--all", "t1").code == 0
    assert place.say("try", "ls").err.strip() == "no tries"


@pytest.mark.slow
def test_a_line_for_cmd_gives_the_score(place: Place) -> None:
    report = tried(place, "-n", "2", "--score", "json", "--judge", "set /p n=<made.txt& echo 0.{i}", *WRITES)
    assert (report["best"], [row["score"] for row in report["attempts"]]) == (2, [0.2, 0.1]), report


@pytest.mark.slow
def test_enough_and_the_budget_end_the_others(place: Place) -> None:
    line = "if %MUDROOM_ATTEMPT%==1 (echo x>made.txt) else (ping -n 60 127.0.0.1 >nul)"
    report = tried(place, "-n", "2", "--jobs", "2", "--until", "1", "--", "cmd", "/d", "/s", "/c", line)
    states = {row["number"]: row["state"] for row in report["attempts"]}
    assert states[1] == "passed" and states[2] in ("ended early", "not started"), report
    report = tried(place, "-n", "1", "--budget", "1s", *WAITS)
    assert (report["end"], report["attempts"][0]["state"]) == ("budget", "timed out"), report


def test_ctrl_c_ends_the_attempts_and_keeps_their_forks(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it they would pass after a minute."""
    begin = Attempts.begin

    def interrupt(running: Attempts) -> None:
        while all(row.state != "running" for row in running.record.attempts):
            threading.Event().wait(0.01)
        _thread.interrupt_main()

    def begun(running: Attempts) -> None:
        begin(running)
        threading.Thread(target=interrupt, args=(running,)).start()

    monkeypatch.setattr(Attempts, "begin", begun)
    said = place.say("try", "-n", "2", *NONE, *WAITS)
    assert said.code == 130 and "Traceback" not in said.err, said
    (record,) = json.loads(place.say("try", "ls", "--json").out)["tries"]
    assert record["end"] == "interrupted" and record["best"] is None, record
    kept = {row["fork"] for row in record["attempts"] if row["fork"]}
    assert forks(place) == kept
    assert "made.txt" not in place.files()


WRONG = (
    ((), "no command was given"),
    (("nothing",), "there is no action 'nothing'"),
    (("show", "t9"), "t9"),
    (("-n", "0", "--", "cmd"), "a try of no attempts"),
    (("--judge", '"open', "--", "cmd"), "close the quote"),
    (("--ask", "terminal", "--", "cmd"), "--ask queue"),
    (("--on", "x", "--", "cmd"), "there is no worker named x"),
)


def test_what_is_wrong_is_said_in_one_line(place: Place) -> None:
    for words, says in WRONG:
        said = place.say("try", *words)
        assert (said.code, said.out) == (125, ""), said
        assert said.err.count("\n") == 1 and says in said.err, said


@pytest.mark.slow
def test_a_judge_that_is_not_there_ends_the_try(place: Place) -> None:
    report = tried(place, "-n", "2", "--jobs", "1", "--judge", "no-such-judge", *WRITES)
    assert report["best"] is None and "no-such-judge" in report["note"], report
