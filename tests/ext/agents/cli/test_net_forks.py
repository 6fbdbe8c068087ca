"""``mudroom net`` and forks that reach each other: with the consent of both."""

from __future__ import annotations

from net_cli import cli
from test_vault_verb import Cli

__all__ = ["cli"]  # fixture


def test_why_a_fork_reaches_another(cli: Cli) -> None:
    cli.place.write(".mudroom/policy.yaml", "network:\n  agents: [planner -> coder, tester -> coder:8080]\n")
    assert cli("policy", "trust", "--yes").returncode == 0
    answers = {
        "coder.mudroom.internal": "coder.mudroom.internal:80: allow: from the fork planner, by network.agents\n",
        "coder.mudroom.internal:8080": "coder.mudroom.internal:8080: allow: from the fork tester, by network.agents\n",
        "coder.mudroom.internal:9": "coder.mudroom.internal:9: deny: network.agents opens port 80, 8080 of it\n",
        "planner.mudroom.internal:80": "planner.mudroom.internal:80: deny: the policy lets no fork reach it; "
        "mudroom net why planner.mudroom.internal:80 --fork NAME asks for one\n",
    }
    for host, answer in answers.items():
        done = cli("net", "why", host)
        assert (done.stdout, done.returncode) == (answer, 0 if ": allow:" in answer else 1), done.stderr
    assert "allow  planner -> coder" in cli("net", "ls").stdout
    cli.place.write(".mudroom/policy.yaml", "network:\n  agents: [planner => coder]\n")
    done = cli("net", "ls")
    assert (done.returncode, "'planner => coder' is not a link between two forks" in done.stderr) == (125, True)
    assert len(done.stderr.splitlines()) == 1


def test_the_consent_of_two_forks(cli: Cli) -> None:
    for name in ("planner", "coder", "Old_1"):
        assert cli("fork", "new", name).returncode == 0
    host = "coder.mudroom.internal:8000"
    why = cli("net", "why", host, "--fork", "planner")
    assert (why.returncode, why.stdout) == (
        1,
        f"{host}: deny: planner may not reach coder:8000 (mudroom net reach coder:8000 --fork planner); "
        "coder does not show port 8000 (mudroom net show 8000 --fork coder)\n",
    )
    reached = cli("net", "reach", "coder:8000", "--fork", "planner")
    assert reached.stdout == "planner may reach coder.mudroom.internal:8000\n"
    assert "not yet: coder does not show port 8000 (mudroom net show 8000 --fork coder)" in reached.stderr
    shown = cli.json("net", "show", "8000", "8001/http", "--fork", "coder")
    assert shown == {"schema": "mudroom.net-fork/1", "fork": "coder", "grants": ["show 8000", "show 8001/http"]}
    why = cli("net", "why", host, "--fork", "planner")
    assert (why.returncode, why.stdout) == (0, f"{host}: allow: net reach coder:8000 and net show 8000 allow it\n")
    assert cli.json("net", "ls")["forks"] == [
        {"fork": "planner", "reach": "coder:8000"},
        {"fork": "coder", "show": "8000"},
        {"fork": "coder", "show": "8001/http"},
    ]
    why = cli("net", "why", "old-1.mudroom.internal:9", "--fork", "planner")
    assert "(mudroom net show 9 --fork Old_1)" in why.stdout, "by the name that commands take"
    assert cli("net", "rm", "8000", "8001", "--fork", "coder").returncode == 0
    assert cli("net", "rm", "coder:8000", "--fork", "planner").stdout == (
        "reach coder:8000 is taken back from the fork planner\n"
    )
    assert cli.json("net", "ls")["forks"] == []


SAME = "have the same name twin for each other, so none has it"
BOTH = "forks reach each other with the consent of both"


def test_bad_input_about_forks(cli: Cli) -> None:
    with cli.place.session() as session:
        for name in ("planner", "coder", "twin", "TWIN"):
            session.forks.new(name)
    for words, problem, hint in (
        ("show 8000", "for which fork?", "--fork NAME"),
        ("show coder:8000 --fork coder", "net show takes ports: coder:8000", "mudroom net show 8000 --fork coder"),
        ("reach nobody:8000 --fork coder", "there is no fork named nobody", "mudroom ls"),
        ("reach co*:8000 --fork coder", "net reach is for one fork: co*:8000", "forks: {reach:"),
        ("reach coder@x:8000 --fork planner", "the fork coder is not the workspace of x", ""),
        ("show 8000 --fork twin", f"the forks TWIN and twin {SAME}", "mudroom fork rename TWIN NEW-NAME"),
        ("rm 8000 --fork coder", "8000 was not granted to the fork coder", "mudroom net ls"),
        (
            "allow coder.mudroom.internal:8000",
            f"no host rule opens coder.mudroom.internal: {BOTH}",
            "net reach coder:8000",
        ),
        ("allow *.mudroom.internal", "no host rule opens", "net reach FORK:8000"),
    ):
        done = cli("net", *words.split())
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (125, "", 1), done
        assert problem in done.stderr and hint in done.stderr, done.stderr
