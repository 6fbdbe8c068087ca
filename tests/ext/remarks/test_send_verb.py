"""``mudroom send``: each remark goes to the agent once, in its fork, and what became of it is told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import forked
from conftest import Place
from mudroom.cli.main import verb_module
from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.terminal import Terminal
from mudroom.errors import UsageError
from mudroom.ext.remarks.cli.send import _to_agent
from mudroom.ext.remarks.session import Remarks
from test_comment_verb import APP, content, folder, remarks, said, work
from test_vault_verb import Cli

pytestmark = pytest.mark.both_users

AGENT = ("--", "sh", "-c", 'printf %s "$0" >prompt; sed -i s/i.cost/i.price/ src/app.py; echo done')


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("src/app.py", APP)
    cli = Cli(place)
    work(cli, "sed -i 's/sum(items)/sum(i.cost for i in items)/' src/app.py")
    said(cli, "comment", "a", "src/app.py:5", "why cost?", "--suggest", "    return sum(i.price for i in items)")
    return cli


def sent(cli: Cli) -> dict[str, Any]:
    return {name: (row["unsent"], row["sent"]) for name, row in remarks(cli).items()}


def test_a_round_and_the_next_one_with_what_is_new(cli: Cli) -> None:
    printed = said(cli, "send", "a", "--print")
    assert (
        "Remark r1, about line 5 of src/app.py:\n| 5:     return sum(i.cost for i in items)\n> why cost?\n+ " in printed
    )
    assert sent(cli) == {"r1": (True, None)}
    told = said(cli, "send", "a", *AGENT)
    assert "round 1: 1 remark to sh -c" in told and "what is new: mudroom diff a@round-1 a" in told
    assert content(cli, "prompt") == printed
    assert sent(cli) == {"r1": (False, {"round": 1, "state": "sent"})}
    new = said(cli, "diff", "a@round-1", "a", "src")
    assert "-    return sum(i.cost for i in items)\n+    return sum(i.price for i in items)" in new
    listed = said(cli, "comment", "a")
    assert "r1  src/app.py:5  (sent in round 1; the lines have changed)" in listed
    assert "what is new since round 1: mudroom diff a@round-1 a" in listed
    assert "a has no remarks that were not sent (mudroom comment a PATH:LINE TEXT" in said(cli, "send", "a", code=125)

    said(cli, "comment", "a", "--answer", "r1", "but what if it has none?")
    said(cli, "comment", "a", "and a test")
    assert "r1  src/app.py:5  (sent in round 1, your answer not yet)" in said(cli, "comment", "a")
    reported = json.loads(cli("send", "--json", "a", *AGENT).stdout)
    assert reported == {
        "schema": "mudroom.sent/1", "fork": "a", "round": 2, "remarks": ["r1", "r2"], "checkpoint": "round-2",
        "exit_code": 0, "output": "done\n",
    }  # fmt: skip
    assert "> why cost?\n> but what if it has none?\n" in content(cli, "prompt")
    assert not (cli.place.project / "prompt").exists()


def test_settled_remarks_are_not_sent(cli: Cli) -> None:
    said(cli, "comment", "a", "--settle", "r1")
    said(cli, "comment", "a", "the other")
    said(cli, "send", "a", *AGENT)
    assert "why cost" not in content(cli, "prompt") and "the other" in content(cli, "prompt")


def test_an_agent_that_ends_badly_has_read_them_or_not(cli: Cli) -> None:
    told = said(cli, "send", "a", "--", "sh", "-c", "exit 3", code=3)
    assert "sh ended with 3; it has read the remarks or not: mudroom send a --again repeats them" in told
    assert sent(cli) == {"r1": (False, {"round": 1, "state": "unknown"})}
    refused = said(cli, "send", "a", *AGENT, code=125)
    assert (
        "it is not known whether the agent has read r1: the last sending was cut off (mudroom send a --again" in refused
    )
    assert "r1: mudroom send a --again, or mudroom comment a --settle r1" in said(cli, "comment", "a")
    said(cli, "send", "a", "--again", *AGENT)
    assert sent(cli) == {"r1": (False, {"round": 2, "state": "sent"})}


def test_an_agent_that_does_not_start_has_read_none(cli: Cli) -> None:
    said(cli, "send", "a", "--", "no-such-agent", code=127)
    assert sent(cli) == {"r1": (True, None)}
    assert remarks(cli)["r1"]["where"] == "here"


def test_a_killed_send_is_told(cli: Cli) -> None:
    sending = forked.popen(
        ["send", "a", "--", "sh", "-c", "echo up; exec sleep 1000"], cwd=cli.place.project, env=cli.environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert sending.stdout is not None and sending.stdout.readline() == "up\n"
    assert "r1  src/app.py:5  (is being sent)" in said(cli, "comment", "a")
    assert "a command is running in a" in said(cli, "send", "a", code=125)
    assert "the remarks of a are being sent (mudroom comment a lists them)" in said(
        cli, "send", "a", "--wait", code=125
    )
    sending.kill()
    sending.communicate()
    assert "r1  src/app.py:5  (perhaps sent: the sending was cut off)" in said(cli, "comment", "a")
    assert sent(cli) == {"r1": (False, {"round": 1, "state": "unknown"})}
    assert "the last sending was cut off" in said(cli, "send", "a", *AGENT, code=125)
    said(cli, "send", "a", "--again", *AGENT)
    assert "why cost?" in content(cli, "prompt")


def test_an_interrupted_agent_has_read_them_or_not(cli: Cli) -> None:
    sending = forked.popen(
        ["send", "a", "--", "sh", "-c", "echo up; exec sleep 1000"], cwd=cli.place.project, env=cli.environment,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert sending.stdout is not None and sending.stdout.readline() == "up\n"
    sending.send_signal(signal.SIGTERM)
    sending.communicate()
    assert sending.returncode
    assert sent(cli) == {"r1": (False, {"round": 1, "state": "unknown"})}


def test_remarks_in_a_new_file_of_the_fork(cli: Cli) -> None:
    assert "src/app.py: file exists (name a new file)" in said(cli, "send", "a", "--file", "src/app.py", code=125)
    assert sent(cli) == {"r1": (True, None)}
    told = said(cli, "send", "a", "--file", "REVIEW.md")
    assert "round 2, 1 remark: they are in REVIEW.md of the fork, which is one of its changes now" in told
    assert content(cli, "REVIEW.md").startswith("The user has reviewed your changes")
    assert "a has no remarks that were not sent" in said(cli, "send", "a", code=125)


def test_a_rollback_drops_the_round(cli: Cli) -> None:
    said(cli, "checkpoint", "before", "--fork", "a")
    said(cli, "send", "a", *AGENT)
    said(cli, "rollback", "before", "--fork", "a", "--yes")
    listed = cli.json("comment", "a")
    assert (listed["round"], listed["remarks"][0]["where"]) == (1, "here")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "a has no conversation to go on with (mudroom send a -- AGENT WORDS starts one with the prompt"),
        (("--agent", "aider"), "aider's profile has no words to go on with"),
        (("--agent", "nobody"), "there is no profile of an agent 'nobody'"),
        (("--print", "--wait"), "--print and --wait are two ways (one at a time)"),
        (("--wait", "--", "true"), "--wait and a command are two ways"),
        (("--",), "no command was given (mudroom send FORK -- AGENT WORDS)"),
        (("--json", "--interactive"), "--json is not for --interactive (mudroom send FORK --json)"),
    ],
)
def test_bad_input_is_one_line_and_sends_nothing(cli: Cli, words: tuple[str, ...], told: str) -> None:
    done = cli("send", "a", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1), done
    assert told in done.stderr
    assert sent(cli) == {"r1": (True, None)}


def test_too_many_remarks_for_one_prompt(cli: Cli) -> None:
    for number in range(2, 14):
        (folder(cli) / f"r{number}.json").write_text(json.dumps({"text": "x" * 9_000}))
    refused = said(cli, "send", "a", *AGENT, code=125)
    assert "bytes together, and 100,000 can be sent (mudroom comment a --settle NAME leaves one out)" in refused


def test_a_discarded_fork_takes_its_remarks_with_it(cli: Cli) -> None:
    there: Path = folder(cli)
    said(cli, "discard", "a", "--yes")
    assert not os.path.exists(there)
    assert "there is no fork" in said(cli, "comment", "a", code=125)


def test_several_conversations_need_a_name(cli: Cli) -> None:
    for agent in ("claude", "codex"):
        (folder(cli).parent / "home" / agent).mkdir(parents=True)
    assert "a has conversations with claude, codex (mudroom send a --agent claude)" in said(cli, "send", "a", code=125)
    assert sent(cli) == {"r1": (True, None)}


def test_only_the_checked_prompt_is_sent(cli: Cli) -> None:
    checked = json.loads(said(cli, "send", "a", "--print", "--json"))["id"]
    said(cli, "comment", "a", "a later one")
    refused = said(cli, "send", "a", "--checked", checked, *AGENT, code=126)
    assert "the remarks are not those that were checked (mudroom send a --print shows them)" in refused
    said(cli, "comment", "a", "--settle", "r2")
    said(cli, "send", "a", "--checked", checked, *AGENT)


def test_what_is_written_between_the_look_and_the_sending_stops_it(
    cli: Cli, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Remarks(place.session(), "a")

    def meanwhile(_remarks: Remarks, _last: int) -> str:
        own.add(b"", 0, 0, "a late one")
        return ""

    monkeypatch.setattr(Remarks, "_checkpoint", meanwhile)
    told = "the remarks or their files have changed just now"
    with pytest.raises(UsageError, match=told), own.handing("sending"):
        raise AssertionError("nothing is handed over")
    assert list(sent(cli).values()) == [(True, None), (True, None)]


def test_an_agent_that_ran_before_an_error_has_read_them_or_not(
    cli: Cli, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Remarks(place.session(), "a")
    context = Context({}, Terminal({}), False, None)

    def failing(_args: object, _context: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(verb_module("agent"), "execute", failing)
    with pytest.raises(OSError, match="No space"), own.handing("sending") as handing:
        _to_agent(["sh"], own, handing, context)
    assert sent(cli) == {"r1": (False, {"round": 1, "state": "unknown"})}
