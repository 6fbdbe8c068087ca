"""Level 0 in a home that is furnished with credentials, sockets and tools."""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from conftest import Place, act_as
from mudroom.core.agent.card import AgentCard, Requirements
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.sandbox.client.client import Client
from mudroom.stage.layers.layer import remove_tree

VIEWS = ("overlay", "copy")


def run(place: Place, script: str, view: str = "overlay", card: AgentCard | None = None, **environ: str) -> Result:
    """One command at level 0, in a session of its own."""
    level = None if card is not None else 0
    session = place.session(Settings(view=view))  # type: ignore[arg-type]
    act_as(session, level=level, card=card)
    extra = {name.encode(): value.encode() for name, value in environ.items()}
    session.machine.confinement.variables = {
        **session.machine.confinement.variables,
        b"HOME": os.fsencode(place.home),
        **extra,
    }
    return session.run([b"sh", b"-c", script.encode()])


def said(result: Result) -> str:
    return (result.stdout + result.stderr).decode()


@pytest.fixture
def short() -> Iterator[Path]:
    """A directory outside of /tmp, which is private inside; with a short name: a socket's has at most 107 bytes
    (unix(7))."""
    above = "/var/lib" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_dir
    directory = Path(tempfile.mkdtemp(prefix="mudroom-", dir=above))
    directory.chmod(0o755)
    yield directory
    remove_tree(os.fsencode(directory))  # the launcher may remove work directories meanwhile


@pytest.fixture
def furnished(short: Path, client: Client) -> Iterator[Place]:
    """A home as people have them."""
    place = Place(short, client)
    furnish(place)
    yield place
    place.close()


def furnish(place: Place) -> None:
    place.write("f", "one\n")
    place.write("d/x", "x\n")
    files = {
        ".bashrc": "rc", ".profile": "p", "notes/n": "note", ".ssh/id_ed25519": "HIDDEN", ".npmrc": "HIDDEN",
        ".config/gh/hosts.yml": "HIDDEN", ".config/tool/settings": "shown", ".aws/credentials": "HIDDEN",
        ".docker/config.json": "HIDDEN", ".cargo/credentials.toml": "HIDDEN", ".cargo/env": "shown",
        ".local/share/keyrings/login.keyring": "HIDDEN", ".local/share/other/x": "shown", ".netrc": "HIDDEN",
        ".claude/.credentials.json": "HIDDEN", ".claude.json": "HIDDEN", ".git-credentials": "HIDDEN",
        ".oddtool/auth.json": "HIDDEN", "bin/tool": "#!/bin/sh\necho works\n",
    }  # fmt: skip
    for name, content in files.items():
        path = place.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    (place.home / "bin/tool").chmod(0o755)
    (place.home / "linked").symlink_to("notes/n")


def card(**needs: Any) -> AgentCard:
    return AgentCard("agent", 0, Requirements(**needs))
