"""The policy's start commands in a fork: in their order, ready, told, and none beside what runs there already."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from box import if_namespaces
from conftest import Place
from test_vault_verb import Cli

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


def test_a_command_that_ends_before_it_is_ready_ends_all(cli: Cli) -> None:
    cli("exec", "--fork", "a", "--", "true")  # nothing is made: cp fails, and http.server starts all the same
    policy = cli.place.project / ".mudroom/policy.yaml"
    policy.write_text("start: {commands: [sleep 1000, {run: 'echo no; exit 3', ready: 8000}], timeout: 1h}\n")
    done = cli("fork", "new", "b", "--live")
    assert done.returncode == 125
    assert "made b: " in done.stderr
    assert "/bin/sh -c 'echo no; exit 3' has ended with 3: what was started in b is ended" in done.stderr
    command = done.stderr.rpartition("(mudroom ")[2].rpartition(")")[0].split()
    assert cli(*command).stdout == "no\n"
    assert cli("ps").stderr == "nothing runs\n"


def test_a_command_that_is_not_ready_in_time_is_ended(cli: Cli) -> None:
    policy = cli.place.project / ".mudroom/policy.yaml"
    policy.write_text("start: {commands: [{run: sleep 1000, ready: 'false'}], timeout: 0.2}\n")
    done = cli("fork", "new", "b", "--live")
    assert done.returncode == 125
    assert "/bin/sh -c 'sleep 1000' is not ready in time (start.timeout): what was started in b is ended" in done.stderr
    assert cli("ps").stderr == "nothing runs\n"


def test_nothing_is_started_that_the_user_has_not_trusted(cli: Cli) -> None:
    del cli.environment["MUDROOM_TRUST_POLICY"]
    cli("fork", "new", "a")
    done = cli("fork", "start", "a")
    assert done.returncode == 125 and "the policy has no commands to start in a fork" in done.stderr
    live = cli("fork", "new", "b", "--from", "a", "--live")
    assert live.returncode == 0 and cli("ps").stderr.endswith("nothing runs\n")
