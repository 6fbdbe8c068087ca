"""``mudroom policy why`` as a user meets it."""

from __future__ import annotations

import sys

import pytest

from conftest import Place
from mudroom.cli.doctor.probe import SYSCALL_NAMES
from mudroom.sandbox.linux.syscall import DENY
from test_vault_verb import Cli


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write(".env", "KEY=1")
    place.write("src/a.py", "")
    return Cli(place)


def test_why_the_last_command_was_refused_something(cli: Cli) -> None:
    assert "no command has run" in cli("policy", "why").stderr
    done = cli("exec", "--fork", "a", "--", sys.executable, "-c", "import socket\nsocket.socket(40, 1)")
    assert done.returncode == 1
    why = cli("policy", "why")
    assert why.returncode == 0
    assert why.stdout.splitlines()[1].startswith("  system call  socket: a family no command here needs: vsock")
    found = cli.json("policy", "why", "--fork", "a")
    assert (found["schema"], found["fork"], found["denials"][0]["count"]) == ("mudroom.why/1", "a", 1)
    assert "1 refused: mudroom policy why" in cli("log").stdout
    cli("exec", "--fork", "a", "--", "true")
    why = cli("policy", "why")
    assert (why.returncode, why.stdout) == (1, "nothing was refused to: true\n")


def test_why_of_a_call_or_a_path(cli: Cli) -> None:
    for about, code, said in (
        ("ptrace", 0, "ptrace: EPERM: steers another process"),
        ("clone", 0, "clone: with some arguments EPERM: a new namespace gives capabilities"),
        ("read", 1, "read: allowed: no rule of the filter names it"),
        ("/etc/hostname", 0, "/etc/hostname: read-only: "),
        ("{home}/.ssh/id_rsa", 0, "/.ssh/id_rsa: private: "),
        ("/var/lib/dpkg", 0, "/var/lib/dpkg: hidden: "),
        ("{project}/src/a.py", 1, "/src/a.py: staged: "),
        ("{project}/.env", 0, "/.env: empty: it is a secret; secrets.show in the policy shows it"),
        ("/proc/1/root", 0, "/proc/1/root: private: "),
    ):
        name = about.format(home=cli.place.home, project=cli.place.project)
        done = cli("policy", "why", name)
        assert said in done.stdout, done
        assert (done.returncode, done.stderr) == (code, ""), name
        assert cli.json("policy", "why", name, code=code)["rules"][0]["refused"] is (code == 0), name


def test_nonsense_is_one_line(cli: Cli) -> None:
    for name, hint in (("no-such-call", "a path has a / in it"), ("ptracee", "did you mean ptrace?")):
        done = cli("policy", "why", name)
        assert (done.returncode, done.stdout) == (125, "")
        assert done.stderr == f"mudroom: there is no system call {name} ({hint})\n"
    assert cli("policy", "allow").returncode == 125


def test_each_call_of_the_filter_has_a_known_name() -> None:
    assert {rule.syscall for rule in DENY} <= SYSCALL_NAMES
    assert {"read", "openat", "clone3", "socketcall", "io_uring_setup"} <= SYSCALL_NAMES
