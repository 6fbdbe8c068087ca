"""A forge and a registry on loopback, a clone of a project, and sessions whose rules hold what is sent there."""

from __future__ import annotations

import itertools
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from api import Api
from forge import ENVIRONMENT, Forge, git
from registry import Registry
from seal import Seal

from mudroom.core.network.host_rules import HostRule, held
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.ext.effects import session as release
from mudroom.ext.effects import upstream
from mudroom.session import Session
from mudroom.session.confinement import command_gate
from mudroom.session.confinement.host_approver import HostAnswers
from mudroom.session.project_session import held_if_possible
from town import Town

_GIT = tuple(name.encode() for name in ENVIRONMENT if name.startswith("GIT_"))

_NAMES = ("forge.example", "registry.example", "api.example", "api.github.com")


class Yard:
    """A forge, over plain HTTP and over TLS, a registry, a project, and sessions whose rules hold what is sent to
    them."""

    def __init__(self, root: Path, town: Town) -> None:
        self.root, self.town, self.forge = root, town, Forge(root / "forge")
        self.upstream = self.forge.repository()
        seal = Seal(root)
        (root / "roots.pem").write_text(seal.roots)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.pem = seal.pem(*_NAMES)
        context.load_cert_chain(self.pem)

        def over_tls(talk: Callable[[socket.socket], None]) -> Callable[[socket.socket], None]:
            def talk_tls(client: socket.socket) -> None:
                with context.wrap_socket(client, server_side=True) as inside:
                    talk(inside)

            return talk_tls

        self.port, self.tls_port = town.serve(self.forge.talk), town.serve(over_tls(self.forge.talk))
        self.registry = Registry(root / "registry")
        self.registry_port = town.serve(self.registry.talk)
        self.registry_tls_port = town.serve(over_tls(self.registry.talk))
        self.api = Api(root / "api")
        self.api_port = town.serve(over_tls(self.api.talk))
        town.names({name: [["127.0.0.1"]] for name in _NAMES})
        self.project = root / "project"
        git("clone", "-q", str(self.upstream), str(self.project), at=root)
        (self.project / "a").write_text("one\n")
        git("add", ".", at=self.project)
        git("commit", "-qm", "first", at=self.project)
        git("push", "-q", "origin", "HEAD:main", at=self.project)

    def url(self, *, tls: bool = False) -> str:
        return (
            f"https://forge.example:{self.tls_port}/team/app.git"
            if tls
            else f"http://forge.example:{self.port}/team/app.git"
        )

    @property
    def is_busy(self) -> bool:
        """Whether a server has an effect at work."""
        return any(server.at_work for server in (self.forge, self.registry, self.api))

    def session(
        self, *more: HostRule, hold: bool = True, agent: str | None = None, read: Sequence[str] = (), **environ: str
    ) -> Session:
        (self.root / "home").mkdir(exist_ok=True)
        rule = HostRule("allow", "forge.example", (self.port, self.tls_port), private=True, source="the test")
        ports = self.registry_port, self.registry_tls_port
        registry = HostRule("allow", "registry.example", ports, private=True, source="the test")
        rules = (held(rule) if hold else rule, held(registry), *more)
        return Session.open(
            os.fsencode(self.project),
            state=os.fsencode(self.root / "state"),
            home=os.fsencode(self.root / "home"),
            environ={
                **{name.encode(): value.encode() for name, value in ENVIRONMENT.items()},
                b"SSL_CERT_FILE": os.fsencode(self.root / "roots.pem"),
                **{name.encode(): value.encode() for name, value in environ.items()},
            },
            settings=Settings(network="gate", hosts=rules, environment=_GIT, read=tuple(map(os.fsencode, read))),
            hosts=HostAnswers(lambda: rules, for_agent=held_if_possible),
            agent=agent,
        )

    def run(self, session: Session, script: str, fork: str = "f") -> Result:
        if session.vault.find(fork) is None:
            session.forks.new(fork)
        return session.run([b"sh", b"-ec", script.encode()], fork=fork)


@pytest.fixture
def yard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Yard]:
    (tmp_path / "town").mkdir()
    with Town(tmp_path / "town") as town:
        monkeypatch.setattr(command_gate, "SHARED", command_gate.SharedGates(lambda _upstream: town.gate))
        monkeypatch.setattr(upstream, "look_up", lambda _host, _port: [bytes((127, 0, 0, 1))])
        yield Yard(tmp_path, town)


def policy(yard: Yard, *more: str) -> None:
    """Write the project's policy. ``more``: what is held, too, and what may be private, too."""
    place = yard.project / ".mudroom/policy.yaml"
    place.parent.mkdir(exist_ok=True)
    forge = f"forge.example:{yard.port}"
    hold, private = [forge, *more[:1]], [forge, *more[1:]]
    place.write_text(f"network:\n  hold: {hold}\n  private: {private}\n")


COMMIT = "echo two >> a; git commit -qam second; "


LOST_ANSWERS = [
    ("cut before", "unknown", 0),
    ("cut after", "sent", 1),
    ("500 after", "sent", 1),
    ("500 before", "unknown", 0),
    ("403 before", "refused", 0),
]
"""What a server does before or after it has taken an effect, its state then, and how often it was taken."""


class _Killed(BaseException):
    pass


@contextmanager
def killed_at(monkeypatch: pytest.MonkeyPatch, step: int, server: type) -> Iterator[None]:
    """The process is gone before the durable step with this number: of the release's, and of the server's sends."""
    steps = itertools.count(1)

    def dying(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **more: Any) -> Any:
            if next(steps) == step:
                raise _Killed
            return function(*given, **more)

        return call

    with monkeypatch.context() as patch, pytest.raises(_Killed):
        for name in ("save", "save_sent", "remove"):
            patch.setattr(release, name, dying(getattr(release, name)))
        patch.setattr(server, "send", dying(vars(server)["send"]))
        yield
