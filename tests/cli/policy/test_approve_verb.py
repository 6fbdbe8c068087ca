"""``mudroom approve`` as a user meets it, and a question on a terminal that waits in the queue as well."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from conftest import Place
from mudroom.core.approval.approval import CommandQuestion, HostQuestion
from mudroom.core.approval_queue import QueueRow
from mudroom.core.command.verdict import Verdict
from mudroom.vault.approvals.queue import Queue
from screen import BASH, Screen
from test_vault_verb import Cli
from tiers import pairs

VERDICT = Verdict("require_approval", ("host_escape_risk",), "class host_escape_risk", "loads a module")
QUESTION = CommandQuestion(
    (b"insmod", b"x\x1b[2J\xff"),
    b"/p/sub",
    "try-1",
    "claude",
    VERDICT,
    "insmod x",
    "1234",
    ((b"/p/sub/x", "9"),),
    ("level 1", "network: open", "variables: A\x1b[2J"),
)
AS_ASKED = f" (as of {'0a' * 16})"
HOST = HostQuestion("registry.example", 443, "tls", "try-1", "claude")

ASKER = f"""
import os, sys
import signal
from mudroom.cli.terminal.command_approver import by_queue, by_terminal, first_of
from mudroom.cli.terminal.terminal import Terminal
from mudroom.core.approval.approval import CommandQuestion, ask_approver
from mudroom.core.command.verdict import Verdict
from mudroom.vault.approvals.queue import Queue
how, vault, patience, pattern = sys.argv[1:]
terminal, question = Terminal(os.environb), {QUESTION!r}._replace(pattern=pattern)
queue = Queue(os.fsencode(vault))
if how == "full":
    queue.put = lambda *_given: (_ for _ in ()).throw(__import__("mudroom.errors").errors.MudroomError("disk full"))
if how == "deaf":  # Ctrl-C is the command's, as while one runs
    signal.signal(signal.SIGINT, lambda _number, _frame: print("heeded", flush=True))
approver = {{
    "alone": lambda: by_terminal(terminal, float(patience)),
    "queue": lambda: by_queue(terminal, queue, float(patience)),
    "deaf": lambda: by_queue(terminal, queue, float(patience)),
    "later": lambda: by_queue(terminal, queue, 0),
}}.get(how, lambda: first_of(terminal, queue, float(patience)))()
print("ANSWER", *ask_approver(approver, question)[:4], "END")
"""


class Approving(Cli):
    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        place.write(".git/HEAD", "")
        done = self("vault", "init")
        assert done.returncode == 0, done.stderr
        self.vault = Path(done.stdout.strip())
        self.queue = Queue(os.fsencode(self.vault))

    def put(self, question: CommandQuestion | HostQuestion = QUESTION) -> str:
        with self.queue.put(question, 0) as ticket:
            return ticket.asked.name

    def row(self, name: str) -> QueueRow:
        return self.queue.row(name)

    def screen(self, *words: str) -> Screen:
        return Screen(self.place, sys.executable, *words, columns=300)

    def asker(self, how: str = "both", patience: float = 60, pattern: str = "insmod x" + AS_ASKED) -> Screen:
        return self.screen("-c", ASKER, how, str(self.vault), str(patience), pattern)

    def waiting(self, screen: Screen) -> str:
        screen.until(lambda: any(row.waiter for row in self.queue.rows()))
        return next(row.name for row in self.queue.rows() if row.waiter)


@pytest.fixture
def cli(place: Place) -> Iterator[Approving]:
    yield Approving(place)


def test_what_waits_is_listed(cli: Approving) -> None:
    assert cli("approve").stderr == "nothing waits for an approval\n"
    name = cli.put()
    host = cli.put(HOST)
    lines = cli("approve").stdout.splitlines()
    assert re.sub(r"  \d+ s  ", "  N s  ", lines[0]).startswith(
        f"{name}  N s  claude  try-1  insmod $'x\\x1b[2J\\xff'  (host_escape_risk: loads a module)"
    )
    assert lines[0].endswith("  level 1, network: open, variables: A\\x1b[2J  [nobody waits any more]")
    assert "to reach registry.example:443" in lines[1]
    found = cli.json("approve")
    assert found["schema"] == "mudroom.approvals/1"
    first, second = found["approvals"]
    assert first["id"] == name
    assert (first["kind"], first["state"], first["waiting"], first["agent"]) == ("command", "waiting", False, "claude")
    assert first["verdict"]["action"] == "require_approval"
    assert first["terms"] == ["level 1", "network: open", "variables: A\x1b[2J"]
    assert first["pattern"] == "insmod x"
    assert (second["id"], second["host"], second["port"]) == (host, "registry.example", 443)


def test_an_answer(cli: Approving) -> None:
    name = cli.put()
    done = cli("approve", name, "--reason", "it is a test")
    assert done.returncode == 0
    assert "claude wants to run, in the fork try-1:\n  insmod $'x\\x1b[2J\\xff'\n  in /p/sub\n" in done.stderr
    assert "\n  level 1, network: open, variables: A\\x1b[2J\n" in done.stderr
    assert f"{name} is allowed; nobody waits: it holds once, if that is asked again in 60 min" in done.stderr
    decision = cli.row(name).decision
    assert decision is not None
    assert (decision.state, decision.by, decision.reason) == ("allowed", "mudroom approve", "it is a test")
    again = cli("approve", name, "--deny")
    assert again.returncode == 1
    assert f"{name} has ended already: allowed by mudroom approve: it is a test" in again.stderr
    assert cli.json("approve", name, "--deny", code=1)["ours"] is False
    assert cli("approve").stdout == ""
    assert cli.json("approve", "--all")["approvals"][0]["decision"]["by"] == "mudroom approve"


def test_an_answer_for_an_hour_and_back(cli: Approving) -> None:
    name = cli.put()
    done = cli("approve", name, "--hour")
    hour = "allow the same command in the fork try-1, while its files and terms are as now, for an hour"
    assert done.returncode == 0, done.stderr
    assert f"  hour: {hour}\n" in done.stderr
    assert done.stderr.endswith(f"{name} is allowed for an hour: {hour}\n")
    with cli.queue.put(QUESTION, 0) as first:
        assert first.look() is not None
    with cli.queue.put(QUESTION, 0) as second:
        repeated = second.look()
        assert repeated is not None
        assert (repeated.state, repeated.by) == ("allowed", "mudroom approve")
    shown = {row["id"]: row["decision"]["hour"] for row in cli.json("approve", "--all")["approvals"]}
    assert shown == {name: True, second.asked.name: False}
    back = cli("approve", name, "--deny")
    assert (back.returncode, back.stderr.splitlines()[-1]) == (0, f"{name} is taken back: it is asked again")
    with cli.queue.put(QUESTION, 0) as third:
        assert third.look() is None


@pytest.mark.parametrize("words", [("fork", "rename", "try-1", "other"), ("discard", "--yes", "try-1")])
def test_an_hour_ends_with_the_name_of_its_fork(cli: Approving, words: tuple[str, ...]) -> None:
    assert cli("fork", "new", "try-1").returncode == 0
    cli("approve", cli.put(), "--hour")
    with cli.queue.put(QUESTION, 0) as ticket:
        assert ticket.look() is not None
    done = cli(*words)
    assert done.returncode == 0, done.stderr
    with cli.queue.put(QUESTION, 0) as ticket:
        assert ticket.look() is None


def test_a_host_for_an_hour(cli: Approving) -> None:
    name = cli.put(HOST)
    found = cli.json("approve", name, "--hour")
    assert (found["state"], found["decision"]["hour"], found["rule_written"]) == ("allowed", True, False)
    assert "registry.example" not in cli("policy", "show").stdout
    assert cli.json("approve", name, "--deny")["state"] == "withdrawn"


def test_the_users_own_question_has_no_hour(cli: Approving) -> None:
    name = cli.put(HOST._replace(agent=""))
    done = cli("approve", name, "--hour")
    told = f"mudroom: {name} is not of an agent in a fork that stays (mudroom approve {name})\n"
    assert (done.returncode, done.stderr) == (125, told)
    assert cli.row(name).state == "waiting"


def test_no(cli: Approving) -> None:
    name = cli.put()
    found = cli.json("approve", name, "--deny")
    assert (found["schema"], found["state"], found["ours"]) == ("mudroom.approval/1", "denied", True)


def test_always_for_a_host_writes_its_rule(cli: Approving) -> None:
    done = cli("approve", cli.put(HOST), "--always")
    assert done.returncode == 0, done.stderr
    assert "rule: allow registry.example:443" in done.stderr
    assert "registry.example:443" in (cli.place.answers / "permissions.yaml").read_text()


def test_always_for_a_worker_s_question_writes_no_rule(cli: Approving) -> None:
    for words in (("--always",), ("--always", "--deny")):
        done = cli("approve", cli.put(HOST._replace(fork=f"r1-{len(words)} on big")), *words)
        assert done.returncode == 0 and "for all errands of this run: " in done.stderr
        assert HOST.host not in cli("policy", "show").stdout
    assert not [path for path in cli.place.root.rglob("*.yaml") if HOST.host in path.read_text()]


def test_always_and_never_for_a_command_write_its_rule(cli: Approving) -> None:
    rules = cli.place.answers / "rules.yaml"
    for words, section, other in ((("--always",), "allow", "deny"), (("--always", "--deny"), "deny", "allow")):
        done = cli("approve", cli.put(QUESTION._replace(fork=section, pattern=f"insmod x{AS_ASKED}")), *words)
        assert done.returncode == 0, done.stderr
        place = "in any directory" if section == "deny" else "in /p/sub, while its files and terms are as now"
        assert f"rule: {section} insmod x, {place}\n" in done.stderr
        found = yaml.safe_load(rules.read_text())
        assert found[section] == ["insmod x" if section == "deny" else f"insmod x{AS_ASKED}"]
        assert not found.get(other)


def test_always_without_a_rule_is_refused_and_nothing_is_decided(cli: Approving) -> None:
    name = cli.put(QUESTION._replace(pattern=""))
    done = cli("approve", name, "--always")
    assert done.returncode == 125
    assert f"no rule can be written for {name}" in done.stderr
    assert cli.row(name).state == "waiting"


def test_what_cannot_be(cli: Approving) -> None:
    for words, said in (
        (("abcdef",), "there is no question abcdef (mudroom approve lists the waiting questions)"),
        (("../x",), "there is no question ../x"),
        (("--deny",), "which question is answered?"),
        (("--follow",), "--follow asks on a terminal"),
        (("abc", "--hour", "--always"), "--hour allows for an hour, and writes no rule (mudroom approve ID --hour)"),
        (("abc", "--hour", "--deny"), "--hour allows for an hour"),
    ):
        done = cli("approve", *words)
        assert done.returncode == 125 and said in done.stderr, done


@pytest.mark.both_users
def test_another_users_vault_is_refused_in_one_line(cli: Approving) -> None:
    name = cli.put()
    if os.geteuid() == 0:
        os.chown(cli.vault, 12345, 12345)
    else:
        os.chmod(cli.vault, 0)
    done = cli("approve", name)
    os.chmod(cli.vault, 0o700)
    assert done.returncode == 125
    assert "belongs to another user" in done.stderr or "cannot be read: Permission denied" in done.stderr
    assert "Traceback" not in done.stderr


def test_while_a_users_command_has_the_vault(cli: Approving) -> None:
    name = cli.put()
    with cli.start("run", "--no", "--", "sh", "-c", "echo runs; read line", stdin=subprocess.PIPE) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"runs\n"
        other = cli.put(QUESTION._replace(fingerprint="5", fork="other"))
        assert cli("approve", name, other).returncode == 0
        assert running.poll() is None
        running.communicate(b"\n")


ANSWERS = {
    "o": "True False terminal",
    "always": "True True terminal",
    "n": "False False terminal",
    "N": "False True terminal",
}
needs_bash = pytest.mark.skipif(not BASH, reason="there is no bash")


@needs_bash
@pytest.mark.parametrize(("how", "key"), [*pairs(["alone", "both", "full"], list(ANSWERS), 3), ("both", "hour")])
def test_the_answers_on_a_terminal(cli: Approving, how: str, key: str) -> None:
    screen = cli.asker(how)
    shown = screen.expect(r".*\[o\]nce  (\[h\]our  )?\[a\]lways  \[n\]o  \[N\]ever").group()
    assert b"insmod $'x\\x1b[2J\\xff'" in shown
    assert b"for /p/sub/x as of now" in shown
    assert b"always: allow insmod x, in /p/sub, while its files and terms are as now" in shown
    assert b"never: deny insmod x, in any directory" in shown
    assert (b"asked on this terminal only: disk full" in shown) is (how == "full")
    screen.type("abort\n")
    screen.expect(r"\[N\]ever")
    screen.type(key + "\n")
    screen.expect(f"ANSWER {ANSWERS.get(key, ANSWERS['o'])}  END")
    assert screen.exit_code() == 0
    assert (b"[h]our" in shown) is (how == "both"), "the queue keeps the answer"
    if how == "both":
        (row,) = cli.queue.rows()
        assert row.used
        assert row.decision is not None
        assert row.decision.by == "terminal"
        assert row.decision.hour is (key == "hour")


def test_a_preset_where_none_is_offered(cli: Approving) -> None:
    name = cli.put()
    done = cli("approve", name, "--preset")
    told = f"mudroom: {name} offers no preset (mudroom approve {name} --always writes the rule that is shown)\n"
    assert (done.returncode, done.stderr) == (125, told)
    assert cli.row(name).state == "waiting"


@needs_bash
def test_without_a_rule_always_is_not_offered(cli: Approving) -> None:
    for pattern in ("", "x" * 301, "a\x1b"):
        screen = cli.asker(pattern=pattern)
        screen.expect(r"\[o\]nce  \[h\]our  \[n\]o")
        screen.type("a\n")
        screen.expect(r"\[o\]nce  \[h\]our  \[n\]o")
        screen.type("N\n")
        screen.expect(r"\[o\]nce  \[h\]our  \[n\]o")
        screen.type("n\n")
        screen.expect("ANSWER False False")
        assert screen.exit_code() == 0


@needs_bash
@pytest.mark.parametrize(("words", "answer"), [((), "True False mudroom approve"), (("--deny",), "False False")])
def test_what_is_answered_elsewhere_is_told_here(cli: Approving, words: tuple[str, ...], answer: str) -> None:
    screen = cli.asker()
    screen.expect(r"\[N\]ever")
    assert cli("approve", cli.waiting(screen), "--reason", "why not", *words).returncode == 0
    screen.expect("by mudroom approve: why not")
    screen.expect(f"ANSWER {answer}.*why not END")
    assert screen.exit_code() == 0


@needs_bash
def test_ctrl_c_and_time_refuse(cli: Approving) -> None:
    screen = cli.asker(patience=0.1)
    screen.expect("no answer, so the command does not run: nobody has answered in 0.1 s")
    screen.expect("ANSWER False False nobody")
    screen = cli.asker("alone")
    screen.expect(r"\[N\]ever")
    screen.type("\x04")
    screen.expect("ANSWER False False nobody the terminal has gone")
    screen = cli.asker()
    screen.expect(r"\[N\]ever")
    screen.type("\x03")
    screen.expect("KeyboardInterrupt")
    assert screen.exit_code() in (1, -signal.SIGINT)
    assert [row.state for row in cli.queue.rows()] == ["expired", "withdrawn"]


@needs_bash
def test_waiting_for_the_queue_says_so_and_ends_with_ctrl_c(cli: Approving) -> None:
    screen = cli.asker("queue")
    screen.expect("waiting for approval [0-9a-f]{6}: mudroom approve [0-9a-f]{6}\r\n")
    assert cli("approve", cli.waiting(screen)).returncode == 0
    screen.expect("ANSWER True False mudroom approve")
    screen = cli.asker("deaf")
    screen.expect("waiting for approval")
    cli.waiting(screen)
    screen.type("\x03")
    screen.expect("heeded.*ANSWER False False nobody nobody waits for the answer any more")
    screen = cli.asker("later")
    screen.expect("ANSWER False False queue waiting for approval [0-9a-f]{6}: mudroom approve")
    assert [row.state for row in cli.queue.rows()] == ["allowed", "withdrawn", "waiting"]


@needs_bash
def test_follow_asks_as_questions_come(cli: Approving) -> None:
    first = cli.put()
    screen = cli.screen("-m", "mudroom", "approve", "--follow")
    screen.expect(r"insmod \$'x.*\[N\]ever  \[s\]kip")
    screen.type("s\n")
    second = cli.put(QUESTION._replace(fork="try-2"))
    screen.expect(r"try-2.*\[s\]kip")
    screen.type("o\n")
    screen.expect(f"{second} is allowed")
    host = cli.put(HOST)
    screen.expect(r"claude wants to reach registry.example:443, from the fork try-1.*\[s\]kip")
    cli.queue.decide(host, allow=False, by="page")
    screen.expect(f"{host}: denied on the page")
    screen.type("\x03")
    assert screen.exit_code() == 0
    assert [cli.row(name).state for name in (first, second, host)] == ["waiting", "allowed", "denied"]


def test_rules_of_commands_are_written_after_the_answer(
    cli: Approving, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mudroom.cli.main import run as run_mudroom
    from mudroom.cli.policy import approve
    from mudroom.errors import MudroomError

    written: list[tuple[str, bool]] = []
    monkeypatch.setattr(approve, "remember_command", lambda _session, *given: written.append(given))
    environ = {os.fsencode(key): os.fsencode(value) for key, value in cli.environment.items()}

    def run(*words: str) -> int:
        return run_mudroom(["approve", *words, "--project", str(cli.place.project)], environ)

    assert run(cli.put(), "--always") == 0
    assert run(cli.put(QUESTION._replace(fork="g")), "--always", "--deny") == 0
    assert written == [("insmod x", True), ("insmod x", False)]
    assert "rule: allow insmod x, in any directory" in capsys.readouterr().err

    def failing(_session: object, _pattern: str, _allow: bool) -> None:
        raise MudroomError("the disk is full")

    monkeypatch.setattr(approve, "remember_command", failing)
    name = cli.put(QUESTION._replace(fork="h"))
    assert run(name, "--always", "--json") == 1
    output = capsys.readouterr()
    assert json.loads(output.out)["rule_written"] is False
    assert "the answer holds, but its rule is not written: the disk is full" in output.err
    assert cli.row(name).state == "allowed"
