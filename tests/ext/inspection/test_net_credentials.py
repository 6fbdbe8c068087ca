"""``mudroom net`` and credentials: what is set is read when it is set, and what can be of no use is said."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from net_cli import NPM, cli
from satellites import needs
from test_vault_verb import Cli

__all__ = ["cli"]  # fixture


@pytest.mark.parametrize("source", ["file:/nowhere/at/all", "env:NOT_SET_ANYWHERE"])
def test_a_credential_that_cannot_be_read_is_said_when_it_is_set(cli: Cli, source: str) -> None:
    done = cli("net", "credential", "TOK", "api.example", "--from", source)
    assert done.returncode == 0
    assert "no command runs as long as this is so: the credential TOK: " in done.stderr
    refused = cli("run", "--", "true")
    assert refused.returncode == 125
    for told in (done.stderr, refused.stderr):
        assert "mudroom net credential --remove TOK does without it" in told
    assert cli("net", "credential", "--remove", "TOK").returncode == 0
    assert cli("run", "--", "true").returncode == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("TOKEN", "net credential takes a name and a host (mudroom net credential TOKEN api.example)"),
        ("A b.example --from nosuch", "nosuch is not a place of a credential: write env, env:NAME, file:PATH"),
    ],
)
def test_a_wrong_line_is_refused_in_a_line(cli: Cli, words: str, told: str) -> None:
    done = cli("net", "credential", *words.split())
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1), done
    assert done.stderr.startswith("mudroom: ") and told in done.stderr


def test_the_user_beside_it_is_set_without_the_rest(cli: Cli) -> None:
    assert cli("net", "credential", "TOK", "a.example", "--from", "env:PATH").returncode == 0
    (before,) = cli.json("net", "credential")["credentials"]
    assert before["user"] == ""
    for user in ("ada", ""):
        done = cli("net", "credential", "TOK", "--user", user)
        assert (done.returncode, ("TOK of the user ada: in" in done.stdout)) == (0, user == "ada"), done.stderr
        assert cli.json("net", "credential")["credentials"] == [before | {"user": user}]
    done = cli("net", "ls", "--user", "ada")
    assert (done.returncode, "--user is for net credential" in done.stderr) == (125, True)


def test_how_foreign_credentials_are_treated_is_set_without_the_rest(cli: Cli) -> None:
    """The command of the hint that a refused request gets."""
    cli("net", "credential", "TOK", "api.example:8443", "--header", "x-api-key", "--from", "env:HOME")
    before = cli.json("net", "credential")["credentials"]
    assert before[0]["foreign"] == "refuse"
    assert cli("net", "credential", "TOK", "--foreign", "strip").returncode == 0
    assert cli.json("net", "credential")["credentials"] == [before[0] | {"foreign": "strip"}]
    for words in (("NONE", "--foreign", "strip"), ("TOK",), ("TOK", "--foreign", "strip", "--header", "x")):
        assert cli("net", "credential", *words).returncode == 125, words


def test_a_credential_for_a_host_that_is_never_inspected_is_said_to_be_of_no_use(cli: Cli) -> None:
    (cli.place.project / ".mudroom").mkdir()
    (cli.place.project / ".mudroom/policy.yaml").write_text("network:\n  never_inspect: [api.example]\n")
    cli("policy", "trust", "--yes")
    assert "network.never_inspect excludes it" in cli("net", "credential", "TOK", "api.example").stderr
    assert "never_inspect" not in cli("net", "credential", "TOK", "other.example").stderr


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST.:8443", "localhost:8443"])
def test_a_credential_for_localhost_is_refused_with_the_one_that_is_used(cli: Cli, host: str) -> None:
    done = cli("net", "credential", "TOK", host, "--from", "env:HOME")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1), done
    port = ":8443" if "8443" in host else ""
    assert "a credential for localhost would never be put in: commands reach this machine by its address" in done.stderr
    assert f"mudroom net credential TOK 127.0.0.1{port};" in done.stderr
    assert cli.json("net", "credential")["credentials"] == []
    assert cli("net", "credential", "TOK", f"127.0.0.1{port}", "--from", "env:HOME").returncode == 0


def test_a_credential_for_a_preset_is_refused_with_its_hosts(cli: Cli) -> None:
    done = cli("net", "credential", "TOK", "@npm")
    assert (done.returncode, done.stderr.count("\n")) == (125, 1), done
    assert f"a credential is for one host, and @npm has several: {NPM}" in done.stderr
    assert "(mudroom net credential TOK registry.npmjs.org)" in done.stderr
    assert "there is no preset @npn" in cli("net", "credential", "TOK", "@npn").stderr


@pytest.mark.parametrize(
    "words",
    [
        ["credential", "TOK", "api.example", "--from", "env:HOME"],
        pytest.param(["hold", "api.example"], marks=needs("effects")),
    ],
    ids=["credential", "hold"],
)
def test_what_needs_the_libraries_of_inspection_is_refused_without_them(cli: Cli, words: list[str]) -> None:
    program = (
        "import sys, os; from mudroom.ext.inspection import authority; authority.find_spec = lambda _name: None;"
        f"from mudroom.cli.main import run; sys.exit(run(['net', *{words}], os.environb))"
    )
    environment = {**cli.environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=cli.place.project, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1), done
    assert "cryptography and h2 not installed" in done.stderr
    assert "pip install 'cryptography>=45' 'h2>=4.3'" in done.stderr
    assert cli.json("net", "credential")["credentials"] == []
    assert "api.example" not in cli("net", "ls").stdout
    assert cli("run", "--", "true").returncode == 0
