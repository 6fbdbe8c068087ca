"""``mudroom log``: rows for every kind, filters, following, verifying, exporting."""

from __future__ import annotations

import ast
import json
import os
import pty
import re
import select
import signal
import sqlite3
import subprocess
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from mudroom.cli.vault import event_row
from mudroom.cli.vault.log import moment
from mudroom.core.journal import event_text
from mudroom.core.journal.event import Event
from mudroom.core.network.flow import Flow, flow_to_json
from mudroom.errors import UsageError
from mudroom.vault.journal.journal import Journal
from test_vault_verb import Cli
from tiers import each

SOURCE = Path(event_row.__file__).parents[2]
S = 10**9
NOW = 1_790_000_000 * S
FLOW = Flow(NOW, "connect", "evil.example", 443, "deny", "", "no rule names it")


@pytest.fixture
def cli(place: Place) -> Cli:
    return Cli(place)


def journal_of(cli: Cli) -> Journal:
    found: Journal = cli.place.session().vault.journal
    return found


def filled(cli: Cli) -> Journal:
    journal = journal_of(cli)
    verdict = {"action": "deny", "classes": ["destructive"], "rule": "policy.yaml:3", "reason": "removes files"}
    rows: list[tuple[str, str, dict[str, Any]]] = [
        ("fork", "a", {"parent": None, "at": None}),
        ("run", "a", {"command": ["npm", "install"], "agent": "claude", "exit_code": 0, "changed": 3}),
        ("verdict", "a", {"command": ["rm", "-rf", "/"], "agent": "claude", "verdict": verdict}),
        ("flow", "a", flow_to_json(FLOW)),
        ("run", "b", {"command": ["make"], "exit_code": 2, "duration_ms": 1234, "denials": [{}]}),
        ("apply", "b", {"apply": "u1", "written": 2, "removed": 0, "conflicts": 0}),
    ]
    for at, (kind, fork, data) in enumerate(rows):
        journal.append(kind, fork, data, time=NOW + at * 60 * S)
    return journal


@pytest.mark.parametrize("policy", ["nope: 1\n", "run: [", "network: {mode: [}"])
def test_a_broken_policy_keeps_nobody_from_the_log(cli: Cli, policy: str) -> None:
    filled(cli)
    whole = cli("log").stdout
    cli.place.write(".mudroom/policy.yaml", policy)
    assert cli("run", "--yes", "--", "true").returncode == 125, "it is broken"
    done = cli("log")
    assert (done.returncode, done.stdout, done.stderr) == (0, whole, "")
    done = cli("log", "verify")
    assert (done.returncode, done.stdout) == (0, "the journal is intact\n")
    assert len(cli("log", "export").stdout.splitlines()) == 6


def numbers(cli: Cli, *words: str) -> list[int]:
    done = cli("log", "--json", *words)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["number"] for line in done.stdout.splitlines()]


# --- rows ---


def kinds_written() -> set[str]:
    """By all of the source: every text given as a kind: directly, in entries, by ``_journal_…`` or ``_turn``."""
    found: set[str] = set()
    for path in SOURCE.rglob("*.py"):
        at, text = path.relative_to(SOURCE), path.read_text()
        if not re.search("journal|_turn|_insert", text):
            continue
        for function in ast.walk(ast.parse(text)):
            if not isinstance(function, ast.FunctionDef):
                continue
            found |= _defaults(function)
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    found |= _given(node, node.func, function)
                elif isinstance(node, ast.Call) and ast.unparse(node.func) == "_journal" and "session" in at.parts:
                    found |= _texts(node.args)
    return found


def _given(call: ast.Call, called: ast.Attribute, function: ast.FunctionDef) -> set[str]:
    if not re.fullmatch("append(_all)?|_?journal.*|_turn", called.attr) and function.name != "_insert":
        return set()
    of_journal = ast.unparse(called.value).endswith("journal")
    if called.attr == "append" and of_journal:
        return _texts(call.args[:1])
    if called.attr.startswith("_journal"):
        return _texts(call.args)
    if called.attr in ("journal", "_turn"):
        return _texts(call.args[:1])
    if (called.attr == "append_all" and of_journal) or function.name == "_insert":
        rows = [one for one in ast.walk(function) if isinstance(one, ast.Tuple) and len(one.elts) == 3]
        return {text for row in rows for text in _texts(row.elts[:1])}
    return set()


def _defaults(function: ast.FunctionDef) -> set[str]:
    if not function.name.startswith("_journal"):
        return set()
    named = reversed(function.args.args)
    pairs = zip(named, reversed(function.args.defaults), strict=False)
    return {text for name, value in pairs if name.arg == "kind" for text in _texts([value])}


def _texts(nodes: Sequence[ast.expr]) -> set[str]:
    values = (one.value for one in nodes if isinstance(one, ast.Constant))
    return {value for value in values if isinstance(value, str) and value}


def test_every_kind_has_a_row() -> None:
    kinds = kinds_written()
    assert {"run", "apply", "undo", "redo", "recover", "fork", "gc", "flow", "net", "gap", "verify"} <= kinds
    assert kinds <= set(event_text.ROWS), kinds - set(event_text.ROWS)
    assert {"verdict", "approval", "policy", "background", "agent"} <= set(event_text.ROWS)


SOMETHING: dict[str, Any] = {
    "command": ["sh", "-c", "x"], "agent": "claude",
    "verdict": {"action": "require_approval", "reason": "why", "rule": "r"},
    "allow": True, "by": "terminal", "keep": True, "reason": "because", "checkpoint": "before-x", "level": 0,
    "exit_code": 3, "timed_out": True, "changed": 1200, "duration_ms": 15, "denials": [{}, {}], "credentials": ["gh"],
    "notes": ["one"], "apply": "u1", "written": 3, "removed": 1, "conflicts": 2, "to": "copy", "why": "no overlay",
    "was": "old", "parent": "p", "at": "q", "undo": "r1", "branch": "b", "commits": 2, "bytes": 5000, "last": 7,
    "state": "started", "card": "card.json", "id": 4, "kind": "overlay", "writable": True, "what": {"a": [1, None]},
}  # fmt: skip


KINDS = [*event_text.ROWS, "of a newer mudroom\x1b"]
ODD = [{}, SOMETHING, dict.fromkeys(SOMETHING), dict.fromkeys(SOMETHING, "\x1b[31m\n")]


@each(("kind", "odd"), product(KINDS, ODD))
def test_a_row_of_anything_is_one_line_and_no_command_for_the_terminal(kind: str, odd: dict[str, Any]) -> None:
    for value in (odd, {**odd, "verdict": "deny", "clock": 5}, {**odd, "command": 5, "answer": {"allow": False}}):
        told = event_row.line(Event(1, NOW, kind, "f\x1b[0m", json.dumps(value), "d"))
        assert told.isprintable(), told
        assert event_text.gravity(Event(1, NOW, kind, "f", json.dumps(value), "d")) in (0, 1, 2)
    assert event_row.line(Event(1, NOW, kind, "", "not JSON", "d")).isprintable()


@pytest.mark.parametrize(("notes", "told"), [(["one"], "1 note"), (["one", "two"], "2 notes")])
def test_notes_are_counted(notes: list[str], told: str) -> None:
    row = event_row.line(Event(1, NOW, "run", "f", json.dumps({"command": ["x"], "notes": notes}), "d"))
    assert row.rstrip().endswith(told)


def test_rows(cli: Cli) -> None:
    filled(cli).append("approval", "b", {"command": ["x"], "allow": True, "by": "terminal", "keep": True}, time=NOW)
    rows = [line.split(maxsplit=3)[3] for line in cli("log").stdout.splitlines()]
    assert rows == [
        "fork     a",
        "run      a         npm install  agent=claude  3 changed",
        "verdict  a         rm -rf /  agent=claude  deny: removes files (policy.yaml:3)",
        "flow     a         deny   connect  evil.example:443  no rule names it",
        "run      b         make  exit 2  1.2 s  1 refused: mudroom policy why",
        "apply    b         apply=u1  written=2",
        "approval b         x  allowed, always on the terminal  (its clock was behind)",
    ]


def test_the_json_form_stays(cli: Cli) -> None:
    filled(cli)
    first = json.loads(cli("log", "--json").stdout.splitlines()[1])
    assert set(first) == {"number", "time", "time_ns", "kind", "fork", "data", "digest"}
    assert (first["number"], first["kind"], first["fork"]) == (2, "run", "a")
    assert (first["time"], first["time_ns"]) == ("2026-09-21T14:14:20Z", NOW + 60 * S)
    assert first["data"]["command"] == ["npm", "install"]


# --- filters ---


def test_filters(cli: Cli) -> None:
    filled(cli)
    for words, expected in (
        ((), [1, 2, 3, 4, 5, 6]),
        (("-n", "2"), [5, 6]),
        (("-n", "0"), [1, 2, 3, 4, 5, 6]),
        (("--kind", "run"), [2, 5]),
        (("--kind", "run,apply", "--kind", "fork"), [1, 2, 5, 6]),
        (("--fork", "b"), [5, 6]),
        (("--fork", "a", "--fork", "b", "-n", "1"), [6]),
        (("--agent", "claude"), [2, 3]),
        (("--verdict", "deny"), [3, 4]),
        (("--grep", "NPM inst"), [2]),
        (("--grep", "evil"), [4]),
        (("--since", "2026-09-21T14:15:20Z"), [3, 4, 5, 6]),
        (("--since", "2026-09-21 14:15:20+00:00", "--until", "2026-09-21T14:17:20Z"), [3, 4]),
        (("--until", "2026-09-21T14:14:00Z", "-n", "1"), [1]),
        (("--since", "5s"), []),
        (("--since", "500w"), [1, 2, 3, 4, 5, 6]),
        (("--kind", "flow", "--fork", "b"), []),
    ):
        assert numbers(cli, *words) == expected, words


def test_more_than_twenty_are_asked_for(cli: Cli) -> None:
    journal = journal_of(cli)
    journal.append_all([("edit", "a", {"changed": n}) for n in range(50)], time=NOW)
    assert numbers(cli) == list(range(31, 51))
    assert numbers(cli, "--since", "2020-01-01") == list(range(1, 51))
    assert numbers(cli, "--since", "2020-01-01", "-n", "3") == [48, 49, 50]


def test_what_makes_no_sense_is_said(cli: Cli) -> None:
    for words, said in (
        (("--kind", "rnu"), "there are no events of the kind rnu (did you mean run?)"),
        (("--since", "yesterday-ish"), "--since 'yesterday-ish' is no time"),
        (("--since", "99999999999w"), "--since '99999999999w' is no time"),
        (("--until", "9" * 400 + "d"), "is no time"),
        (("--against", "1:00000000"), "mudroom log has no --against (it is an option of mudroom log verify)"),
        (("-o", "x"), "mudroom log has no --output (it is an option of mudroom log export)"),
        (("export", "--against", "1:00000000"), "mudroom log export has no --against"),
        (("verify", "-n", "0"), "mudroom log verify has no -n (it is an option of mudroom log)"),
        (("verify", "--follow"), "mudroom log verify has no --follow"),
        (("verify", "--kind", "run"), "mudroom log verify has no --kind"),
        (("verify", "-o", "x"), "mudroom log verify has no --output"),
        (("--until", "2026-13-45"), "--until '2026-13-45' is no time"),
        (("-n", "-3"), "-n -3"),
        (("verify", "--against", "x"), "--against 'x'"),
        (("export", "--follow"), "log export does not follow"),
    ):
        done = cli("log", *words)
        assert done.returncode == 125
        assert said in done.stderr
    assert cli("log", "--kind", "run").stderr == "nothing of that kind has happened\n"
    assert cli("log").stderr == "nothing has happened yet\n"


def test_times() -> None:
    assert moment("2h", "x", NOW) == NOW - 7200 * S
    assert moment("1.5 d ago", "x", NOW) == NOW - 36 * 3600 * S
    assert moment("2026-09-21T14:13:20.5Z", "x", NOW) == NOW + S // 2
    local = time.localtime(NOW // S)
    assert moment(time.strftime("%Y-%m-%d %H:%M:%S", local), "x", NOW) == NOW
    assert moment(time.strftime("%H:%M:%S", local), "x", NOW) == NOW
    assert moment("9:05", "x", NOW) == moment(time.strftime("%Y-%m-%d 09:05", local), "x", NOW)
    for wrong in ("99999999999w", "9" * 400 + "s", "", "2", "25:00", "-2h", "2026", "now", "2h3"):
        with pytest.raises(UsageError):
            moment(wrong, "x", NOW)


def test_colours_are_for_terminals(cli: Cli) -> None:
    filled(cli)
    assert "\x1b" not in cli("log").stdout
    main, side = pty.openpty()
    with cli.start("log", stdout=side, stderr=side):
        os.close(side)
        text = b""
        try:
            while chunk := os.read(main, 65536):
                text += chunk
        except OSError:
            pass  # EIO: the other end is closed
    os.close(main)
    assert b"\x1b[31mverdict " in text
    assert b"npm install" in text


# --- following ---


def lines(process: subprocess.Popen[bytes], count: int) -> list[int]:
    assert process.stdout is not None
    return [json.loads(process.stdout.readline())["number"] for _line in range(count)]


def follow(cli: Cli, *words: str) -> subprocess.Popen[bytes]:
    return cli.start("log", "--follow", "--json", *words)


def test_follow(cli: Cli) -> None:
    """What there is, then what comes, through an archiving, until Ctrl-C."""
    journal = filled(cli)
    with follow(cli, "--fork", "a", "--fork", "c", "-n", "2") as process:
        assert lines(process, 2) == [3, 4]
        journal.append("run", "c", {"command": ["x"]}, time=NOW)
        assert lines(process, 1) == [7]
        journal.append_all([("run", "b", {}), ("run", "c", {})], time=NOW)
        assert journal.archive(9) is not None
        assert lines(process, 1) == [9]
        journal.append("run", "c", {}, time=NOW)
        assert journal.archive(10) is not None
        journal.append("run", "c", {}, time=NOW)
        assert lines(process, 2) == [10, 11]
        process.send_signal(signal.SIGINT)
        rest, said = process.communicate(timeout=30)
        assert (process.returncode, rest, said) == (130, b"", b"")


def test_follow_costs_next_to_nothing(cli: Cli) -> None:
    filled(cli)
    with follow(cli) as process:
        lines(process, 6)
        before = _processor_time(process.pid)
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 1.5)[0] == []
        assert _processor_time(process.pid) - before < 0.1
        process.terminate()


def _processor_time(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_follow_ends_when_nobody_reads(cli: Cli) -> None:
    filled(cli)
    with follow(cli) as process:
        lines(process, 6)
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(timeout=30) == 141, "without another event"
        assert process.stderr is not None
        assert process.stderr.read() == b""


# --- verifying ---


def test_verify(cli: Cli) -> None:
    journal = filled(cli)
    journal.archive(3)
    done = cli("log", "verify")
    head = journal.head()
    assert (done.returncode, done.stdout) == (0, "the journal is intact\n")
    assert done.stderr == f"6 events; verify --against 6:{head.digest}\n"
    told = json.loads(cli("log", "verify", "--json").stdout)
    assert told == {
        "schema": "mudroom.verify/1", "intact": True, "broken_at": None, "events": 6, "head": f"6:{head.digest}",
        "problems": [], "unanchored": 0,
    }  # fmt: skip
    for number in (2, 5, 6):
        event = next(iter(journal.events_since(number - 1)))
        assert cli("log", "verify", "--against", f"{number}:{event.digest}").returncode == 0
        assert cli("log", "verify", "--against", f"{number}:{event.digest[:8]}").returncode == 0
    for wrong in (f"7:{head.digest}", f"5:{head.digest}"):
        done = cli("log", "verify", "--against", wrong)
        assert (done.returncode, done.stdout) == (1, "")
        assert "is not there as it was" in done.stderr


def test_verify_names_the_row(cli: Cli) -> None:
    journal = filled(cli)
    journal.close()
    database = sqlite3.connect(os.fsdecode(cli.place.session().vault.path) + "/journal.db")
    database.execute("DROP TRIGGER event_is_never_changed")
    database.execute("UPDATE event SET data = replace(data, 'rm', 'ls') WHERE number = 3")
    database.commit()
    database.close()
    done = cli("log", "verify")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "mudroom: event 3 was edited, or event 2 was, with its digest\n"
    told = json.loads(cli("log", "verify", "--json").stdout)
    assert (told["intact"], told["broken_at"], len(told["problems"])) == (False, 3, 1)
    assert "event 3 was edited" in cli("vault", "check").stdout


def test_a_cut_that_was_noted_is_no_damage_of_the_vault(cli: Cli) -> None:
    """But verify goes on to say so."""
    journal = filled(cli)
    database = sqlite3.connect(os.fsdecode(cli.place.session().vault.path) + "/journal.db")
    database.execute("DROP TRIGGER event_is_never_removed")
    database.execute("DELETE FROM event WHERE number > 4")
    database.commit()
    database.close()
    journal.append("run", "a", {}, time=NOW)
    done = cli("log", "verify")
    assert done.returncode == 1
    assert "events 5 to 6 are missing at the end when this one was written" in done.stderr
    assert cli("vault", "check").stdout == "the vault is whole\n"
    assert "events up to 6 were missing" in cli("log").stdout


# --- exporting ---


def test_export(cli: Cli, tmp_path: Path) -> None:
    journal = filled(cli)
    journal.append_all([("edit", "=f", {"changed": n}) for n in range(30)], time=NOW)
    journal.archive(4)
    rows = [json.loads(line) for line in cli("log", "export").stdout.splitlines()]
    assert [row["number"] for row in rows] == list(range(1, 37))
    assert rows[:6] == [json.loads(line) for line in cli("log", "--json", "-n", "0").stdout.splitlines()][:6]

    place = tmp_path / "out"
    done = cli("log", "export", "--kind", "run,edit", "-n", "3", "-o", str(place))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"exported 3 events: {place}\n")
    written = [json.loads(line) for line in place.read_text().splitlines()]
    assert [(row["number"], row["fork"]) for row in written] == [(34, "=f"), (35, "=f"), (36, "=f")]
    assert place.stat().st_mode & 0o777 == 0o600


def test_an_export_writes_into_what_is_no_file(cli: Cli, tmp_path: Path) -> None:
    filled(cli)
    other = tmp_path / "out.new"
    other.write_text("somebody's")
    kept, link, pipe = tmp_path / "kept", tmp_path / "out", tmp_path / "pipe"
    link.symlink_to("kept")
    assert cli("log", "export", "-o", str(link)).returncode == 0
    assert (link.is_symlink(), other.read_text()) == (True, "somebody's")
    assert len(kept.read_text().splitlines()) == 6
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert cli("log", "export", "-o", str(pipe)).returncode == 0
        assert len(os.read(reader, 1 << 16).splitlines()) == 6
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert cli("log", "export", "-o", "/dev/null").returncode == 0
    assert Path("/dev/null").is_char_device()
    assert sorted(one.name for one in tmp_path.iterdir() if one.name[:3] in ("out", "kep", "pip")) == [
        "kept", "out", "out.new", "pipe",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        """kind='flow', data='{"verdict'""",
        "kind='flow', data='[]'",
        """kind='flow', data='{"port":"x"}'""",
        """kind='flow', data='{"started":99999999999999999999999,"host":5}'""",
        """data='{"clock":""" + "9" * 40 + "}'",
        """data='{"clock":NaN,"exit_code":NaN}'""",
        """data='{"a":"\\ud800","command":["\\ud800"],"agent":"\\ud800"}'""",
        "kind='flow', data='{\"host\":\"\\ud800\"}'",
        "data=CAST(X'7b2261223a22ff227d' AS TEXT)",
        "fork=CAST(X'ff41' AS TEXT)",
        "kind=CAST(X'ff41' AS TEXT)",
        "digest=CAST(X'ff41' AS TEXT)",
        "time=-9223372036854775807",
    ],
)
def test_a_row_edited_by_hand_is_shown_and_named(cli: Cli, change: str) -> None:
    journal = filled(cli)
    journal.close()
    (path,) = cli.place.state.glob("vaults/*/journal.db")
    with sqlite3.connect(path) as database:
        database.execute("DROP TRIGGER event_is_never_changed")
        database.execute(f"UPDATE event SET {change} WHERE number = 3")
    database.close()
    for words in (
        ("log",),
        ("log", "--json"),
        ("log", "--grep", "zz", "--since", "2h"),
        ("log", "export"),
        ("net", "log"),
        ("net", "log", "--denied", "--json"),
    ):
        done = cli(*words)
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), (words, done.stderr)
    assert re.search(r"^ +3 ", cli("log").stdout, re.MULTILINE)
    done = cli("log", "verify", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["broken_at"] == 3


def test_an_export_that_fails_leaves_what_was_there(cli: Cli, tmp_path: Path) -> None:
    journal = filled(cli)
    found = journal.archive(3)
    assert found is not None
    os.truncate(found.path, 40)
    place = tmp_path / "out"
    place.write_text("before")
    done = cli("log", "export", "-o", str(place))
    assert done.returncode == 125
    assert "is damaged" in done.stderr
    assert place.read_text() == "before"
    assert not place.with_name("out.new").exists()
    assert cli("log", "export", "-o", "/nowhere/at/all").returncode == 125
