"""The host process's part while a command runs: it stores the effects that the gate hands over (``message.py``).

Rules of this file: the gate has read untrusted data, so its messages are, too; whether a host's effects are held is
decided here again. No code here waits for the gate but to send it an answer.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

from mudroom.core.network.fork_host import ForkDial
from mudroom.core.network.host_rules import HostRule, Request, holding
from mudroom.errors import FULL, MudroomError
from mudroom.ext.effects.message import LONGEST, HeldAnswer, HeldQuestion, is_repository, is_ssh_repository
from mudroom.ext.effects.publish import canonical, is_file_of, is_place
from mudroom.ext.effects.ssh_client import RemoteGit, ssh_line, ssh_words
from mudroom.ext.effects.store import HeldEffect, IncomingEffect, Rejected, effects, held_refs, package
from mudroom.ext.effects.wire import PushHead, packet
from mudroom.net.gate_handle import GuardHandle
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

MOST_OPEN = 16
"""Requests that are received at the same time."""
_PATIENCE = 10.0
"""Seconds for the gate to take an answer."""
_PIECE = 1 << 18
_MOST_FILE = 20 << 20
"""Bytes of a published file that is read before the apply."""


class HoldDesk:
    """Owner: the thread that attends to the command."""

    def __init__(
        self,
        vault: Vault,
        fork: Fork,
        rules: Callable[[], Sequence[HostRule]],
        clock: Callable[[], int],
        variables: Mapping[bytes, bytes],
    ) -> None:
        """``variables``: the user's."""
        self._vault, self._fork, self._rules, self._clock = vault, fork, rules, clock
        self._open: list[_Request] = []
        self._variables = variables

    def descriptors(self) -> list[int]:
        return [request.fileno() for request in self._open]

    def begin(self, guard: GuardHandle, dial: ForkDial) -> None:
        """Answer the gate, which asks for a connection."""
        refusal = ""
        if holding(self._rules(), dial.host, dial.port) is None:
            refusal = "no rule holds what is sent there"
        elif len(self._open) >= MOST_OPEN:
            refusal = f"{MOST_OPEN} requests are being received"
        if refusal:
            guard.dialled(dial.identity, -1, refusal, is_refused=True)
            return
        ours, theirs = socket.socketpair()
        with theirs:
            ours.setblocking(False)
            self._open.append(_Request(ours, dial, self))
            guard.dialled(dial.identity, theirs.fileno(), rule="network.hold")

    def attend(self, ready: Collection[int]) -> None:
        for request in [request for request in self._open if request.fileno() in ready]:
            if request.receive():
                self._open.remove(request)
                request.close()

    def close(self) -> None:
        while self._open:
            self._open.pop().close()

    def held(self, asked: HeldQuestion, dial: ForkDial) -> HeldAnswer:
        draft = self._draft(asked, dial)
        if asked.kind == "refs":
            return HeldAnswer(held=held_refs(effects(self._fork.path), draft.repository))
        told = [
            (one, one.publish)
            for one in effects(self._fork.path)
            if one.publish is not None and (one.state, one.port) == ("held", dial.port) and dial.host in one.page_hosts
        ]
        if asked.kind == "pages":
            files = [publish.place for _one, publish in told if publish.place.startswith("*") and not publish.act]
            return HeldAnswer([*(publish.page for _one, publish in told), *files])
        path = canonical(asked.path)
        for one, publish in told:
            if is_file_of(publish, path):
                content = package(self._fork.path, one).content
                if len(content) > _MOST_FILE:
                    raise Rejected(f"to read {publish.file} before the apply, as it is above {_MOST_FILE >> 20} MiB")
                return HeldAnswer(file=content)
        requests = [package(self._fork.path, one) for one, publish in told if publish.page == path]
        return HeldAnswer(page=[request._replace(content=b"") for request in requests])

    def reach(self, asked: HeldQuestion, dial: ForkDial, channel: socket.socket) -> RemoteGit:
        """Start the user's ssh at the other end of a channel. Raise Rejected."""
        place = Request(dial.host, dial.port, "", asked.path)
        try:
            line = ssh_line(self._variables, self._rules(), place, asked.login, asked.method)
            return RemoteGit(line, self._variables, channel.fileno())
        except ValueError as error:
            raise Rejected(str(error)) from error

    def words(self, said: bytes, dial: ForkDial) -> str:
        return ssh_words(said, dial.host, dial.port, self._variables)

    def incoming(self) -> IncomingEffect:
        return IncomingEffect(self._fork.path)

    def keep(self, incoming: IncomingEffect, asked: HeldQuestion, dial: ForkDial) -> HeldAnswer:
        """Store a whole effect. Raise Rejected."""
        rule = holding(self._rules(), dial.host, dial.port)
        requests = () if rule is None else rule.requests
        push, replaced = incoming.keep(self._draft(asked, dial), asked, requests)
        if push is None:
            return HeldAnswer()
        for other in (push, *(other._replace(why=f"replaced by {push.name}") for other in replaced)):
            self._vault.journal.append("effect", self._fork.name, other.event(), time=push.time)
        return HeldAnswer(list(push.labels), push.kind, list(push.capabilities))

    def _draft(self, asked: HeldQuestion, dial: ForkDial) -> HeldEffect:
        is_path = is_repository if asked.kind in ("push", "refs") else is_place
        if asked.scheme == "ssh":
            is_path = is_ssh_repository
        if asked.kind not in ("request", "mail") and not is_path(asked.path):
            raise Rejected("a request that is not understood")
        push = HeldEffect(0, self._clock(), asked.scheme, dial.host, dial.port, asked.path)
        return push._replace(credential=asked.credential, login=asked.login)


class _Request:
    """One connection of the gate."""

    def __init__(self, channel: socket.socket, dial: ForkDial, desk: HoldDesk) -> None:
        self.channel, self._dial, self._desk = channel, dial, desk
        self._line = b""
        self._asked: HeldQuestion | None = None
        self._incoming: IncomingEffect | None = None
        self._remote: RemoteGit | None = None

    def fileno(self) -> int:
        return self.channel.fileno() if self._remote is None else self._remote.fileno()

    def receive(self) -> bool:
        """Take what has come. Return whether the request is over."""
        if self._remote is not None:
            said = self._remote.ended()
            if said:
                self._refuse(self._desk.words(said, self._dial))
            return said is not None
        try:
            data = self.channel.recv(_PIECE)
        except BlockingIOError:
            return False
        except ConnectionError:
            return True
        try:
            if data:
                self._take(data)
                return False
            return self._finish()
        except Rejected as rejected:
            self._refuse(str(rejected), rejected.head)
        except OSError as error:
            if error.errno not in FULL:
                raise
            self._refuse("the disk of mudroom's state is full")
        except (msgspec.DecodeError, MudroomError) as error:
            self._refuse(str(error) if isinstance(error, MudroomError) else "damaged")
        return True

    def _refuse(self, why: str, head: PushHead | None = None) -> None:
        if self._asked is not None and self._asked.kind == "ssh":
            self._send(packet(b"ERR " + why.encode()))
            return
        refs = ["refs/heads/*"] if head is None else [command.ref for command in head.commands]
        self._answer(HeldAnswer(refs, "", _SAYING if head is None else list(head.capabilities), why))

    def _take(self, data: bytes) -> None:
        if self._asked is None:
            line, newline, data = (self._line + data).partition(b"\n")
            if not newline:
                self._line = line
                if len(line) > LONGEST:
                    raise Rejected("a request that is not understood")
                return
            self._asked = msgspec.json.decode(line, type=HeldQuestion)
            if self._asked.kind == "ssh":
                self._remote = self._desk.reach(self._asked, self._dial, self.channel)
        if self._asked.kind in ("push", "publish", "request", "mail"):
            if self._incoming is None:
                self._incoming = self._desk.incoming()
            self._incoming.add(data)

    def _finish(self) -> bool:
        if self._asked is not None and self._incoming is not None:
            self._answer(self._desk.keep(self._incoming, self._asked, self._dial))
        elif self._asked is not None:
            self._answer(self._desk.held(self._asked, self._dial))
        return True

    def _answer(self, answer: HeldAnswer) -> None:
        self._send(msgspec.json.encode(answer))

    def _send(self, data: bytes) -> None:
        self.channel.settimeout(_PATIENCE)
        try:
            self.channel.sendall(data)
        except OSError:
            return  # the gate is gone, and with it the client: an effect that is stored stays, and the review shows it

    def close(self) -> None:
        self.channel.close()
        if self._remote is not None:
            self._remote.close()
        if self._incoming is not None:
            self._incoming.close()
            self._incoming = None


_SAYING = ["report-status", "side-band-64k"]
"""Taken for the words of a client whose own were not read: all git clients have them (gitprotocol-capabilities(5))."""
