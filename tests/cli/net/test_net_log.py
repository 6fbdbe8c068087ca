"""``mudroom net log``: the connections of commands, as the journal has them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any

from mudroom.core.network.flow import Flow, flow_to_json
from net_cli import GATE, cli
from test_vault_verb import Cli

__all__ = ["cli"]  # fixture


FLOW = Flow(1_700_000_000 * 10**9, "connect", "a.com", 443, "allow", "policy.yaml:3", "policy.yaml:3: a.com allows it")
DENIED = FLOW._replace(host="evil.example", verdict="deny", rule="", reason="no rule names it")


def journal(cli: Cli, *flows: tuple[str, Flow]) -> None:
    session = cli.place.session()
    for fork, flow in flows:
        session.vault.journal.append("run", fork, {"command": ["true"]}, time=1)
        session.vault.journal.append("flow", fork, flow_to_json(flow), time=flow.started)


def rows(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_log(cli: Cli) -> None:
    assert cli("net", "log").stderr == "no command has wanted anything of the network yet\n"
    request = FLOW._replace(way="http", port=80, method="GET", path="/x?token=hunter2", status=200, received=1200)
    strange = DENIED._replace(host="a\x1b[31m", reason="a control character is not for names")
    journal(cli, ("a", FLOW), ("b", request), ("a", DENIED), ("b", strange))
    lines = cli("net", "log").stdout.splitlines()
    assert [line.split()[:2] + line.split()[4:7] for line in lines] == [
        ["2", "a", "allow", "connect", "a.com:443"],
        ["4", "b", "allow", "http", "a.com:80"],
        ["6", "a", "deny", "connect", "evil.example:443"],
        ["8", "b", "deny", "connect", "a\\x1b[31m:443"],
    ]
    assert "GET /x?… 200  0 B out, 1,200 B in" in lines[1]
    assert lines[2].endswith("no rule names it")
    assert [row["host"] for row in rows(cli("net", "log", "--json", "--fork", "a"))] == ["a.com", "evil.example"]
    assert [row["number"] for row in rows(cli("net", "log", "--json", "--denied"))] == [6, 8]
    assert [row["number"] for row in rows(cli("net", "log", "--json", "-n", "1"))] == [8]
    assert set(rows(cli("net", "log", "--json"))[0]) == {"number", "fork", *Flow._fields}


def test_repeats_are_told_with_their_number(cli: Cli) -> None:
    journal(cli, ("a", DENIED._replace(repeats=9_999, seconds=150.2)))
    assert cli("net", "log").stdout.endswith("no rule names it  10,000 times in 150 s\n")
    assert rows(cli("net", "log", "--json"))[0]["repeats"] == 9_999


def test_the_journal_tells_flows_in_the_same_words(cli: Cli) -> None:
    journal(cli, ("a", DENIED._replace(way="dns", port=0)))
    cli.place.session().vault.journal.append("flow", "a", {"way": "pigeon"}, time=DENIED.started)
    lines = cli("log").stdout.splitlines()
    assert lines[1].split(maxsplit=4)[3:] == ["flow", "a         deny   dns  evil.example  no rule names it"]
    assert lines[2].endswith("unreadable: a flow without started")


GET = """
import urllib.request, urllib.error
for url in "http://a.example/?k=hunter2", "http://10.0.0.1/x?k=hunter2", "http://a.example/":
    try:
        urllib.request.urlopen(url)
    except urllib.error.HTTPError as error:
        print(error.code)
"""


def test_what_a_command_could_not_reach(cli: Cli) -> None:
    cli.place.write(".mudroom/policy.yaml", GATE + "  deny: [a.example]\n")
    done = cli("exec", "--fork", "f", "--", sys.executable, "-c", GET)
    assert done.stdout.split() == ["403", "403", "403"], done
    flows = [row for row in rows(cli("net", "log", "--json", "--denied")) if row["way"] == "http"]
    assert {(row["fork"], row["verdict"]) for row in flows} == {("f", "deny")}
    said = {row["host"]: row["reason"] for row in flows}
    assert said["a.example"] == "policy.yaml:3: a.example denies it"
    assert said["10.0.0.1"].startswith("a private address")
    assert "hunter2" not in json.dumps(flows)


def test_a_flow_that_nobody_can_read_is_told(cli: Cli) -> None:
    cli.place.session().vault.journal.append("flow", "a", {"way": "pigeon"}, time=1)
    assert cli("net", "log").stdout.endswith("unreadable: a flow without started\n")
    assert rows(cli("net", "log", "--json"))[0]["error"] == "a flow without started"
    assert cli("net", "log", "--denied").stdout != ""


def test_follow(cli: Cli) -> None:
    journal(cli, ("a", FLOW))
    command = ["net", "log", "--follow", "--json", "--denied"]
    with cli.start(*command) as process:
        assert process.stdout is not None
        journal(cli, ("a", FLOW), ("b", DENIED))
        first = json.loads(process.stdout.readline())
        assert (first["fork"], first["host"]) == ("b", "evil.example")
        journal(cli, ("c", DENIED))
        assert json.loads(process.stdout.readline())["fork"] == "c"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130


def test_the_log_of_a_fork_has_the_connections_that_lead_to_it(cli: Cli) -> None:
    flow = FLOW._replace(host="old-1.mudroom.internal", port=8000, address="fork old-1")
    journal(cli, ("planner", flow), ("planner", FLOW), ("Old_1", FLOW))
    lines = cli("net", "log", "--fork", "Old_1").stdout.splitlines()
    assert [line.split()[1] for line in lines] == ["Old_1", "Old_1"]
    assert "from fork planner  " in lines[0] and "from fork" not in lines[1]
    told = rows(cli("net", "log", "--fork", "Old_1", "--json"))
    assert [(row["fork"], row.get("from")) for row in told] == [("planner", "planner"), ("Old_1", None)]
