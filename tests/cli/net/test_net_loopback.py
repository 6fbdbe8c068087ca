"""``mudroom net`` and this machine: servers on its loopback, and ports of a sandbox that are opened for the user."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from mudroom.core.network.preset import PRESETS
from mudroom.policy.config import LOOPBACK_WORDS, answers_name
from net_cli import GATE, cli
from test_vault_verb import Cli

__all__ = ["cli"]  # fixture


ASK = """import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20) as client: print(client.recv(9).decode())
"""


@pytest.mark.parametrize(
    ("policy", "allow"),
    [
        ("", "127.0.0.1:{port}"),
        ("", "localhost:{port}"),
        (GATE + "  allow: [localhost:{port}]\n", ""),
        (GATE + "  private: ['127.0.0.1:{port}']\n", ""),
    ],
    ids=["answer", "localhost", "policy", "policy, private"],
)
def test_a_server_on_this_machine_is_reached_once_a_rule_names_it(cli: Cli, policy: str, allow: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        threading.Thread(target=_greet, args=(server,), daemon=True).start()
        run = ("run", "--yes", "--", sys.executable, "-c", ASK, str(port))
        refused = cli(*run)
        assert (refused.returncode, "ConnectionRefusedError" in refused.stderr) == (1, True), refused
        assert cli("net", "why", f"127.0.0.1:{port}").stdout.endswith(
            f"to allow it: mudroom net allow 127.0.0.1:{port}\n"
        )
        if policy:
            cli.place.write(".mudroom/policy.yaml", policy.format(port=port))
        else:
            said = cli("net", "allow", allow.format(port=port)).stderr
            assert said.startswith(f"note: commands reach it at 127.0.0.1:{port}")
            assert said.endswith("; a server of their own cannot listen there\n")
        assert cli("net", "why", f"127.0.0.1:{port}").returncode == 0
        done = cli(*run)
        assert (done.returncode, done.stdout) == (0, "hello\n"), done
        server.shutdown(socket.SHUT_RDWR)


def _greet(server: socket.socket) -> None:
    while True:
        try:
            client, _where = server.accept()
        except OSError:
            return
        with client:
            client.sendall(b"hello")


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (None, False),
        ("allow:\n  - registry.npmjs.org  # 2026-11-27\n", False),
        ("allow:\n  - '127.0.0.1:8377'\n", True),
        ('allow:\n  - "@npm"\n', False),
        *(
            (f'allow:\n  - "@{name}"\n', True)
            for name, preset in PRESETS.items()
            if preset.hosts[0].startswith("localhost")
        ),
        ("private:\n  - localhost:8377\n", True),
        ("allow: ['[::1]:8377']\n", True),
    ],
)
def test_answers_are_searched_for_loopback(tmp_path: Path, content: str | None, expected: bool) -> None:
    (tmp_path / ".mudroom/local").mkdir(parents=True)
    if content is not None:
        (tmp_path / ".mudroom/local/permissions.yaml").write_text(content)
    assert answers_name(LOOPBACK_WORDS, os.fsencode(tmp_path), b"/none") is expected


@pytest.mark.parametrize("odd", ["link", "fifo", "directory"])
def test_odd_answers_are_not_searched(tmp_path: Path, odd: str) -> None:
    place = tmp_path / ".mudroom/local/permissions.yaml"
    place.parent.mkdir(parents=True)
    if odd == "link":
        (tmp_path / "other").write_text("localhost")
        place.symlink_to(tmp_path / "other")
    elif odd == "fifo":
        os.mkfifo(place)
    else:
        place.mkdir()
    assert not answers_name(LOOPBACK_WORDS, os.fsencode(tmp_path), b"/none")


def test_an_allow_of_a_name_holds_if_its_address_is_public(cli: Cli) -> None:
    cli("net", "allow", "a.com", "8.8.8.8", "localhost:8080")
    cli("net", "allow", "--private", "db.example")
    said = cli("net", "why", "a.com", "8.8.8.8", "db.example", "localhost:8080", "b.com").stdout.splitlines()
    assert [line.endswith(", if its address is public") for line in said] == [True, False, False, False, False], said


SERVER = """
import socket
with socket.create_server(("127.0.0.1", 3000)) as server:
    while True:
        taken, _address = server.accept()
        with taken:
            taken.sendall(b"served")
"""
ASK = "import socket, sys; c = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 20); print(c.recv(9).decode())"


@pytest.mark.both_users
def test_a_port_that_is_opened_is_for_this_user(cli: Cli) -> None:
    """Every user of a machine reaches its loopback: another one gets nothing, and it is counted."""
    done = cli("exec", "--json", "--background", "--fork", "f", "--", sys.executable, "-I", "-c", SERVER)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)
    while 3000 not in (cli.json("ps")["commands"] or [{"ports": []}])[0]["ports"]:
        assert cli.json("ps")["commands"], cli("ps", "--output", row["id"]).stderr
    with cli.start("net", "open", "3000", "--as", "0", "--json", text=True) as opening:  # fmt: skip
        assert opening.stdout is not None and opening.stderr is not None
        port = json.loads(opening.stdout.readline())["port"]

        def ask(**who: Any) -> str:
            words = [sys.executable, "-I", "-c", ASK, str(port)]
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30, **who)
            return str(done.stdout.strip())

        assert ask() == "served"
        if os.geteuid() == 0:
            assert ask(user=65534, group=65534, extra_groups=[]) == ""
            assert "a connection of the user 65534 was refused (--all-users" in opening.stderr.readline()
        opening.send_signal(signal.SIGINT)
        assert opening.wait(20) == 0
    second = cli("exec", "--background", "--fork", "g", "--", "sleep", "1000")
    told = "mudroom: commands are running in several forks: f, g (--fork f names one)\n"
    assert cli("net", "open", "3000").stderr == told
    assert cli("ps", "--end", second.stdout.strip()).returncode == 0
    refused = [line for line in cli("log", "--last", "0").stdout.splitlines() if "refused=1" in line]
    assert len(refused) == (1 if os.geteuid() == 0 else 0), refused
    assert cli("net", "ls", "--all-users").returncode == 125
    assert cli("ps", "--end", row["id"]).returncode == 0
