"""A machine that lacks something, as the answers of its system say it: each refusal names it, and nothing is left."""

from __future__ import annotations

import errno
import os
import re
import socket
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import cast

import pytest

from conftest import Place
from mudroom.core import registry
from mudroom.core.confinement.limit import Limits
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError
from mudroom.sandbox.client.report import StepFailed
from mudroom.sandbox.platform import LINUX
from mudroom.session import Session
from mudroom.session.confinement.confinement import Confinement
from mudroom.session.confinement.grant import Grant, decide
from mudroom.session.confinement.level_two import SessionContainers
from mudroom.session.own_sandbox import OwnSandbox
from whole_text import whole

pytestmark = [pytest.mark.both_users, pytest.mark.root]


def without_xattrs(place: Place, patch: pytest.MonkeyPatch) -> Session:
    patch.setattr("mudroom.session.confinement.confinement.keeps_marks", lambda _path: False)
    return place.session(Settings(view="overlay"))


def failing(op: str) -> Callable[..., None]:
    def attempt(_self: OwnSandbox, *_rest: object) -> None:
        raise StepFailed(op, errno.EPERM, "no namespaces")

    return attempt


def without_overlays(place: Place, patch: pytest.MonkeyPatch) -> Session:
    patch.setattr(OwnSandbox, "_attempt", failing("overlay"))
    return place.session(Settings(view="overlay"))


def without_a_sandbox(place: Place, patch: pytest.MonkeyPatch) -> Session:
    session = place.session()
    patch.setattr(OwnSandbox, "_attempt", failing("clone"))
    patch.setattr(Confinement, "host", session.machine.confinement.host._replace(landlock_abi=0))
    return session


def of_another_kind(place: Place, patch: pytest.MonkeyPatch) -> Session:
    session = place.session()
    patch.setattr(Confinement, "host", session.machine.confinement.host._replace(machine="riscv64"))
    return session


def with_a_socket(place: Place, _patch: pytest.MonkeyPatch) -> Session:
    path = place.root / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fspath(path))
    return place.session(Settings(read=(os.fsencode(path),)))


def without_containers(place: Place, patch: pytest.MonkeyPatch) -> Session:
    patch.setattr(registry, "is_installed", lambda satellite: satellite != "containers")
    return place.session(level=2)


def without_a_gate(place: Place, _patch: pytest.MonkeyPatch) -> Session:
    return place.session(Settings(network="gate"), platform=LINUX._replace(closed={"gate": "docs/X.md says why"}))


def without_groups(place: Place, _patch: pytest.MonkeyPatch) -> Session:
    limits = Limits(memory=64 << 20)
    return place.session(Settings(limits=limits), platform=LINUX._replace(has_groups=False, name="plan9"))


def without_mounts(place: Place, _patch: pytest.MonkeyPatch) -> Session:
    session = place.session(Settings(limits=Limits(tmp=64 << 20)))
    session.machine.confinement.mode = "landlock"
    return session


MESSAGES: list[tuple[Callable[[Place, pytest.MonkeyPatch], Session], str]] = [
    (
        without_xattrs,
        "the overlay view needs a file system with xattrs for the state; found: VAULT (on TYPE) "
        "(set MUDROOM_STATE to a directory on another one)",
    ),
    (
        without_overlays,
        "the overlay view needs a kernel overlay in a user namespace; found: no namespaces "
        "(--view auto works in a copy then)",
    ),
    (
        without_a_sandbox,
        "a sandbox needs user namespaces, or Landlock in the kernel; found: no namespaces "
        "(permit one of them; mudroom doctor says how)",
    ),
    (of_another_kind, "a system call filter needs x86_64 or aarch64; found: riscv64"),
    (
        with_a_socket,
        "ROOT/s is a socket: a command that connects to it can do whatever its server can "
        "(show files and directories only; a card names the sockets that an agent needs)",
    ),
    (
        without_groups,
        "a limit of memory needs control groups; found: plan9, which has none "
        '(permit to go on without: "limits: {missing: degrade}" in .mudroom/policy.yaml)',
    ),
    (
        without_mounts,
        "a limit of /tmp needs user namespaces; found: a sandbox without them "
        '(permit to go on without: "limits: {missing: degrade}" in .mudroom/policy.yaml)',
    ),
    (
        without_containers,
        "level 2 of this command is not part of this installation: it lacks mudroom/ext/containers "
        "(install all of mudroom: pip install --force-reinstall mudroom)",
    ),
    (without_a_gate, "network: gate needs a gate; found: Linux (docs/X.md says why)"),
]


@pytest.mark.parametrize(("make", "message"), MESSAGES)
def test_it_is_named_and_leaves_no_fork(
    place: Place, monkeypatch: pytest.MonkeyPatch, make: Callable[[Place, pytest.MonkeyPatch], Session], message: str
) -> None:
    place.write("a", "1\n")
    session = make(place, monkeypatch)
    with pytest.raises(MudroomError) as told:
        session.run([b"true"])
    said = str(told.value).replace(os.fsdecode(session.vault.path), "VAULT").replace(os.fspath(place.root), "ROOT")
    assert re.sub(r"\(on \w+\)", "(on TYPE)", said) == message
    assert list(session.vault.forks()) == [] and os.listdir(session.vault.path + b"/layers") == []


@pytest.mark.parametrize("settings", [Settings(), Settings(limits=Limits(missing="degrade"))])
def test_a_lower_level_is_no_answer(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "is_installed", lambda _satellite: False)
    decision = decide(settings, None, 2, {})
    assert (decision.level, decision.rule) == (None, "machine")
    assert decision.reason == "level 2 is not part of this installation: it lacks mudroom/ext/containers"


def test_a_mounted_fork_has_no_containers(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session = place.session(Settings(network="none"))
    session.forks.new("f")
    session.forks.mount("f", kind="copy")
    near = SimpleNamespace(mode="overlay")
    fake = SimpleNamespace(engine=near, forget=lambda _fork: None, close=lambda: None)
    session.machine._containers = cast(SessionContainers, fake)
    monkeypatch.setattr(session.machine, "granted", lambda _actor: Grant(2))
    told = "a container in a mounted fork needs level 1; found: level 2 (mudroom unmount f, or --level 1)"
    with pytest.raises(MudroomError, match=whole(told)):
        session.run([b"true"], fork="f")
    session.forks.unmount("f")


ASK = b"import urllib.request as u; u.urlopen('http://example.org/')"


def test_a_proxy_that_is_none_closes_the_network(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command runs, and is told once."""
    monkeypatch.setenv("https_proxy", "http://proxy:port")
    with place.session(Settings(network="gate")) as session:
        result = session.run([sys.executable.encode(), b"-c", ASK])
    assert result.exit_code == 1
    assert result.notes == (
        "no network: the proxy of this machine cannot be used: port is no port (1 to 65535) "
        "(https_proxy=http://HOST:PORT names one)",
    )
