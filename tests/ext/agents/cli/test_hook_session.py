"""``mudroom hook``: background processes and ``/tmp`` live until the agent ends."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Place
from test_vault_verb import Cli

pytestmark = pytest.mark.both_users

AGENT = """\
import json, subprocess, sys
for line in sys.stdin:
    words, event, into = json.loads(line)
    guard = 'MUDROOM_HOOK_PARENT=$PPID "$@"; exit'
    asked = ["/bin/sh", "-c", guard, "guard", *words]
    hook = subprocess.run(asked, input=json.dumps(event), capture_output=True, text=True)
    answer = json.loads(hook.stdout)["hookSpecificOutput"]
    if answer["permissionDecision"] != "allow":
        print(json.dumps([answer["permissionDecisionReason"], answer]), flush=True)
        continue
    with open(into, "ab") as stream:
        shell = ["bash", "-c", answer["updatedInput"]["command"]]
        subprocess.run(shell, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream)
    print(json.dumps([open(into).read(), answer]), flush=True)
"""
"""An agent that asks its hook, and runs what the hook answers with its output in a file, as claude does."""


class Agent:
    """A process of an agent, which is none of a shell."""

    def __init__(self, cli: Cli, root: Path) -> None:
        self.cli, self._root, self._calls = cli, root, 0
        self.answered: dict[str, Any] = {}
        """The hook's last answer."""
        self.program = root / "agent"
        shutil.copy(os.path.realpath(sys.executable), self.program)
        self.process = subprocess.Popen(
            [self.program, "-c", AGENT],
            cwd=cli.place.project,
            env={**cli.environment, "PYTHONHOME": sys.base_prefix},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def bash(self, command: str, **more: Any) -> str:
        """Return what a command has printed into its file when it ended."""
        self._calls += 1
        event = {
            "hook_event_name": "PreToolUse",
            "tool_name": "Bash",
            "tool_input": {"command": command, **more},
            "cwd": str(self.cli.place.project),
        }
        words = ["env", "-u", "PYTHONHOME", sys.executable, "-m", "mudroom", "hook", "run", "claude"]
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps([words, event, str(self.output)]) + "\n")
        self.process.stdin.flush()
        printed, self.answered = json.loads(self.process.stdout.readline())
        return str(printed)

    @property
    def output(self) -> Path:
        return self._root / f"output-{self._calls}"

    def end(self) -> None:
        if self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def rows(self) -> list[Any]:
        rows: list[Any] = json.loads(self.cli("ps", "--all", "--json").stdout)["commands"]
        return [row for row in rows if row["state"] == "running"]


@pytest.fixture
def agent(place: Place) -> Iterator[Agent]:
    place.write("a", "one\n")
    agent = Agent(Cli(place), place.root)
    yield agent
    agent.end()
    agent.cli("discard", "claude", "--end")


LATE = "(while [ ! -e /tmp/go ]; do sleep 0.05; done; echo late; : >/tmp/gone) &"
"""A process that prints when it is told to, by a later command."""
UNTIL_GONE = "while [ ! -e /tmp/gone ]; do sleep 0.05; done"


def test_files_in_tmp_and_processes_stay_for_the_next_command(agent: Agent) -> None:
    assert agent.bash(f"echo kept >/tmp/kept; {LATE} echo started") == "started\n"
    first = agent.output
    assert agent.bash(f"cat /tmp/kept; : >/tmp/go; {UNTIL_GONE}") == "kept\n"
    while first.read_text() != "started\nlate\n":  # cat(1) relays it
        assert agent.bash("true") == ""
    assert not os.path.exists("/tmp/kept")


def test_a_command_in_the_background_runs_beside_others(agent: Agent) -> None:
    assert agent.bash("echo beside", run_in_background=True) == "beside\n"


def test_a_command_that_a_signal_ends_leaves_nothing(agent: Agent) -> None:
    agent.bash("sleep 1000 & echo $! >/tmp/pid; kill -9 $$")
    assert agent.bash("kill -0 $(cat /tmp/pid) || echo gone").endswith("gone\n")


def test_the_end_of_the_agent_ends_what_it_left(agent: Agent) -> None:
    agent.bash("echo x >/tmp/x; sleep 1000 &")
    [row] = agent.rows()
    assert row["companion"] == agent.process.pid
    agent.process.kill()
    agent.process.wait()
    while agent.rows():
        pass
    assert agent.cli("exec", "--fork", "claude", "--quiet", "--", "test", "-e", "/tmp/x").returncode == 1


def test_who_needs_the_fork_at_rest_ends_it_and_says_so(agent: Agent) -> None:
    agent.bash("echo two >b; sleep 1000 &")
    done = agent.cli("unmount", "claude")
    assert done.returncode == 0, done.stderr
    assert not agent.rows()
    agent.cli("diff", "claude")
    agent.cli(
        "exec", "--fork", "claude", "--quiet", "--background", "--companion", str(os.getpid()), "--", "sleep", "9"
    )
    done = agent.cli("apply", "claude", "--yes")
    assert done.returncode == 0, done.stderr
    assert "note: background processes and /tmp of the agent's session in claude have ended" in done.stderr
    assert (agent.cli.place.project / "b").read_text() == "two\n"
    assert agent.bash("echo again") == "again\n"
    assert len(agent.rows()) == 1


def test_two_agents_share_a_fork_and_each_ends_its_own(agent: Agent, place: Place, tmp_path: Path) -> None:
    agent.bash("true")
    (tmp_path / "other").mkdir()
    other = Agent(agent.cli, tmp_path / "other")
    other.bash("echo shared >/tmp/shared")
    assert len(agent.rows()) == 2
    other.end()
    while len(agent.rows()) == 2:
        pass
    assert agent.bash("cat /tmp/shared") == "shared\n"
    assert [row["companion"] for row in agent.rows()] == [agent.process.pid]


def test_an_agent_that_has_ended_is_no_companion(agent: Agent) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    words = ("exec", "--fork", "claude", "--quiet", "--background", "--companion", str(ended.pid), "--", "sleep", "9")
    assert agent.cli(*words).returncode == 0
    while agent.rows():
        pass


OTHER_LIMITS = (".mudroom/policy.yaml", "limits: {open_files: 900}\n")
ENDED = "background processes and /tmp of the agent's session in claude have ended"


def test_the_next_command_runs_under_a_new_policy(agent: Agent) -> None:
    agent.bash("echo x >/tmp/x; sleep 1000 &")
    agent.cli.place.write(*OTHER_LIMITS)
    agent.cli("policy", "trust", "--yes")
    assert agent.bash("test -e /tmp/x || ulimit -n").splitlines() == ["900", f"note: {ENDED}"]
    assert not agent.rows()
    agent.bash("echo y >/tmp/y")
    assert agent.bash("cat /tmp/y") == "y\n"


def test_the_next_command_does_not_see_a_new_secret(agent: Agent) -> None:
    agent.bash("echo x >/tmp/x; sleep 1000 &")
    agent.cli.place.write(".env", "PASSWORD=x\n")
    assert agent.bash("test -e /tmp/x || wc -c <.env") == "0\n"
    assert agent.answered["additionalContext"] == f"mudroom: {ENDED}."
    assert len(agent.rows()) == 1
    agent.bash("echo y >/tmp/y")
    assert agent.bash("cat /tmp/y") == "y\n"


def test_a_command_of_the_user_keeps_the_settings_it_began_with(agent: Agent) -> None:
    agent.bash("true")
    agent.cli("exec", "--fork", "claude", "--quiet", "--background", "--", "sleep", "1000")
    agent.cli.place.write(*OTHER_LIMITS)
    agent.cli("policy", "trust", "--yes")
    assert "were started under other settings" in agent.bash("true")
    assert len(agent.rows()) == 2


def test_where_the_policy_refuses_the_background_each_command_is_for_itself(agent: Agent) -> None:
    agent.cli.place.write(".mudroom/policy.yaml", "commands: {background: deny}\n")
    agent.cli("policy", "trust", "--yes")
    assert agent.bash("echo x | tee /tmp/x") == "x\n"
    assert agent.bash("test -e /tmp/x || echo gone") == "gone\n"
    assert "would hold the fork" in agent.bash("true", run_in_background=True)
    assert not agent.rows()
