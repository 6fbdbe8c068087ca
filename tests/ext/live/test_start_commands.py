"""The policy's start commands in a fork: in their order, ready, told, and none beside what runs there already."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from background_command import SH
from box import if_namespaces, kill_with_descendants
from clocks import give_way
from conftest import Place
from mudroom.core.settings import Settings, StartCommand
from mudroom.errors import MudroomError
from mudroom.ext.live import start
from mudroom.ext.live.start import start_commands
from mudroom.session import Background
from test_vault_verb import MUDROOM, Cli

pytestmark = [pytest.mark.both_users, if_namespaces]

POLICY = """\
start:
  commands:
    - {run: 'echo $$ > served; cp made page; exec /usr/bin/python3 -m http.server 8000', ready: 8000}
    - {run: [sh, -c, 'cp served before; echo up > second; exec sleep 1000'], ready: test -s second}
    - sleep 1000
"""


@pytest.fixture
def cli(place: Place) -> Iterator[Cli]:
    place.write(".mudroom/policy.yaml", POLICY)
    cli = Cli(place)
    cli.environment["MUDROOM_TRUST_POLICY"] = "1"
    yield cli
    cli("ps", "--end", "--all")


def page(cli: Cli, fork: str) -> str:
    script = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:8000/page').read().decode())"
    done = cli("exec", "--quiet", "--fork", fork, "--", "/usr/bin/python3", "-c", script)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_live_fork_serves_beside_its_parent(cli: Cli) -> None:
    cli("exec", "--fork", "a", "--", "sh", "-c", "echo old > made")
    made = cli.json("fork", "start", "a")
    assert [row["fork"] for row in made["started"]] == ["a"] * 3 and made["schema"] == "mudroom.fork/1"
    cli("exec", "--fork", "a", "--", "sh", "-c", "echo new > made")
    live = cli.json("fork", "new", "b", "--from", "a", "--live")
    assert (live["fork"], live["parent"], len(live["started"])) == ("b", "a", 3)
    assert (page(cli, "a"), page(cli, "b")) == ("old", "new")
    listed = json.loads(cli("ps", "--json").stdout)["commands"]
    assert [(row["fork"], row["ports"]) for row in listed if row["ports"]] == [("a", [8000]), ("b", [8000])]
    again = cli("fork", "start", "b")
    assert again.returncode == 125 and "a command is running in the background of the fork b" in again.stderr


def failed(cli: Cli, policy: str, fork: str = "b") -> str:
    """Start a new fork under another policy, which fails, and return the error."""
    (cli.place.project / ".mudroom/policy.yaml").write_text(f"start: {policy}\n")
    done = cli("fork", "new", fork, "--live")
    assert done.returncode == 125 and done.stdout == ""
    made, _line, error = done.stderr.partition("\n")
    assert made.startswith(f"made {fork}: ") and error.count("\n") == 1
    assert error.endswith(")\n") and f": what was started in {fork} is ended (mudroom ps --output " in error
    assert cli("ps").stderr == "nothing runs\n"
    return error


def test_a_command_that_ends_before_it_is_ready_ends_all(cli: Cli) -> None:
    error = failed(cli, "{commands: [sleep 1000, {run: 'echo no; exit 3', ready: 8000}], timeout: 1h}")
    assert "/bin/sh -c 'echo no; exit 3' has ended with 3; no: what" in error
    command = error.rpartition("(mudroom ")[2].rpartition(")")[0].split()
    assert cli(*command).stdout == "no\n"


def test_a_command_that_is_not_ready_in_time_is_ended(cli: Cli) -> None:
    error = failed(cli, "{commands: [{run: sleep 1000, ready: 'false'}], timeout: 0.2}")
    assert "/bin/sh -c 'sleep 1000' is not ready in time (start.timeout): what" in error
    error = failed(cli, "{commands: [{run: sleep 1000, ready: nowhere}], timeout: 0.5}", "c")
    assert error.count("nowhere: not found") == 1, "its last lines, each once"
    error = failed(cli, "{commands: [{run: sleep 1000, ready: 8000}], timeout: 0.2}", "d")
    assert "/bin/sh -c 'sleep 1000' is not ready in time (start.timeout): what" in error


def started_in(place: Place, commands: tuple[StartCommand, ...]) -> list[Background]:
    settings = Settings(start=commands, start_timeout=3600.0)
    with place.session(settings=settings) as session:
        session.forks.new("b")
        try:
            return start_commands(session, "b")
        except MudroomError:
            assert all(ended is not None for _started, ended in session.sandboxes.backgrounds("b"))
            raise


SERVER = StartCommand((*SH, b"exec sleep 1000"), ready=(b"true",))


@pytest.mark.parametrize(
    ("commands", "told"),
    [
        ((StartCommand((*SH, b"echo bad >&2; exit 3")),), "has ended with 3; bad: "),
        ((SERVER, StartCommand((b"nowhere",))), "has ended with 127; mudroom: nowhere: command not found: "),
        ((StartCommand((*SH, b"sleep 1000 &")),), "has ended with 0, but a server has to stay in the foreground: "),
        ((StartCommand((*SH, b"sleep 1000 &"), 80),), "has ended with 0, but a server has to stay in the foreground: "),
    ],
)
def test_a_command_that_does_not_serve_is_not_told_as_started(
    place: Place, monkeypatch: pytest.MonkeyPatch, commands: tuple[StartCommand, ...], told: str
) -> None:
    monkeypatch.setattr(start, "_FALL", 1000.0)
    with pytest.raises(MudroomError, match=told):
        started_in(place, commands)


def test_a_step_that_ends_with_success_is_no_server(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "_FALL", 1000.0)
    (server,) = started_in(place, (StartCommand((*SH, b"echo made > made")), SERVER))
    assert server.argv == SERVER.argv


def test_a_port_that_another_start_command_has(cli: Cli) -> None:
    server = "{run: exec /usr/bin/python3 -m http.server 8000, ready: 8000}"
    error = failed(cli, f"{{commands: [{server}, {server}], timeout: 1h}}")
    assert "has ended with 1; " in error and "Address already in use: what" in error


def test_a_command_that_reads_a_secret_is_told_that_it_is_empty(cli: Cli) -> None:
    cli.place.write(".env", "SECRET=x\n")
    error = failed(cli, "{commands: [{run: '. ./.env; test -n \"$SECRET\"', ready: 8000}]}")
    assert " has ended with 1; .env appears empty to it (secrets.show): what" in error
    policy = cli.place.project / ".mudroom/policy.yaml"
    served = "start: {commands: [{run: '. ./.env; test -n \"$SECRET\" && exec sleep 1000', ready: 'true'}]}\n"
    policy.write_text(served + "secrets: {show: [.env]}\n")
    assert cli("fork", "new", "c", "--live").returncode == 0


def begun(cli: Cli) -> subprocess.Popen[str]:
    """Return the process that starts a fork's commands, once the first runs."""
    starting = subprocess.Popen(
        [*MUDROOM, "fork", "start", "b"],
        cwd=cli.place.project, env=cli.environment, start_new_session=True,
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    while not list(cli.place.state.glob("vaults/*/layers/*/tree/up")):
        assert starting.poll() is None
        give_way()
    return starting


def test_ctrl_c_ends_what_was_started(cli: Cli) -> None:
    policy = cli.place.project / ".mudroom/policy.yaml"
    policy.write_text("start: {commands: [{run: 'touch up; exec sleep 1000', ready: 'false'}], timeout: 1h}\n")
    cli("fork", "new", "b")
    starting = begun(cli)
    os.killpg(starting.pid, signal.SIGINT)
    assert (starting.communicate()[1], starting.returncode) == ("mudroom: interrupted\n", 130)
    assert cli("ps").stderr == "nothing runs\n"
    policy.write_text("start: {commands: [exec sleep 1000]}\n")
    assert cli("fork", "start", "b").returncode == 0


def test_a_fork_in_which_servers_start_stays_until_they_are_ended(cli: Cli) -> None:
    policy = cli.place.project / ".mudroom/policy.yaml"
    policy.write_text("start: {commands: [{run: 'touch up; exec sleep 1000', ready: 'false'}], timeout: 1h}\n")
    cli("fork", "new", "b")
    starting = begun(cli)
    kept = cli("discard", "b", "--yes")
    assert kept.returncode == 125 and "a command is running in the background of the fork b" in kept.stderr
    assert cli("ps", "--end", "--all").returncode == 0
    assert "has ended with 143: what was started in b is ended" in starting.communicate()[1]
    assert starting.returncode == 125
    assert cli("discard", "b", "--yes").returncode == 0


def test_servers_that_were_killed_with_the_machine_start_again(cli: Cli) -> None:
    """The process that holds them is killed, and what it has left is of an earlier boot. A copy of the fork has what
    the servers had written, and nothing stays behind in the vault."""
    policy = cli.place.project / ".mudroom/policy.yaml"
    policy.write_text("start: {commands: [{run: 'echo line >> log; exec sleep 1000', ready: test -s log}]}\n")
    cli("fork", "new", "a", "--live")
    cli("fork", "new", "b", "--from", "a", "--live")
    for row in cli.json("ps")["commands"]:
        kill_with_descendants(row["keeper"])
    booted = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    for place in cli.place.state.glob("vaults/*/forks/*/*"):
        os.utime(place, ns=(booted - 10**9,) * 2, follow_symlinks=False)
    again = cli("fork", "start", "b")
    assert again.returncode == 0, again.stderr
    made = cli("fork", "new", "c", "--from", "a", "--live")
    assert made.returncode == 0, made.stderr
    lines = [cli("exec", "--quiet", "--fork", fork, "--", "cat", "log").stdout.count("line") for fork in "abc"]
    assert lines == [1, 3, 2]
    cli("ps", "--end", "--all")
    cli("discard", "a", "b", "c", "--yes")
    cli("vault", "gc")
    (vault,) = cli.place.state.glob("vaults/*")
    left = [path.name for name in ("forks", "layers", "trash", "bases") for path in (vault / name).iterdir()]
    assert left == [], left


def test_nothing_is_started_that_the_user_has_not_trusted(cli: Cli) -> None:
    del cli.environment["MUDROOM_TRUST_POLICY"]
    cli("fork", "new", "a")
    done = cli("fork", "start", "a")
    assert done.returncode == 125 and "the policy has no commands to start in a fork" in done.stderr
    live = cli("fork", "new", "b", "--from", "a", "--live")
    assert live.returncode == 0 and cli("ps").stderr.endswith("nothing runs\n")
