"""The connection to a server when a held push is sent, asked about or taken back.

Rules of this file: it runs in the user's process, with the user's credential, and to the host alone that the push
names: its name is looked up and its addresses are vetted as the gate does, no redirection is followed, and all that
comes back is bounded. An error says whether the server may have acted.
"""

from __future__ import annotations

import http.client
import socket
import ssl
from binascii import b2a_base64
from collections.abc import Sequence
from contextlib import closing

from mudroom.core.network.address import show_address
from mudroom.core.network.host_rules import HostRule, Request, decide, vet
from mudroom.ext.effects.store import HeldPush
from mudroom.ext.effects.wire import PushReport, RefCommand, parse_advertisement, parse_report
from mudroom.ext.inspection.authority import client_context
from mudroom.net.gate.resolve import LocalAddresses
from mudroom.net.protocol.upstream import Upstream
from mudroom.typing import BinaryIO, NamedTuple

_PATIENCE = 60.0
"""Seconds for the server's next bytes."""
_MOST_REFS, _MOST_REPORT = 64 << 20, 4 << 20
_AGENT = "git/2.39 (mudroom)"


class NotSent(Exception):
    """Nothing has changed at the server. ``by_server``: it has refused the push."""

    def __init__(self, why: str, *, by_server: bool = False) -> None:
        super().__init__(why)
        self.by_server = by_server


class LostAnswer(Exception):
    """The answer is lost: the server may have acted."""


class ServerAccess(NamedTuple):
    """What a connection is made with."""

    rules: Sequence[HostRule]
    """The host rules as they are now."""
    roots: str
    proxy: Upstream | None
    authorization: tuple[str, str] | None
    """Header and value, with the user's credential."""


class PushServer:
    """One push's server."""

    def __init__(self, push: HeldPush, access: ServerAccess) -> None:
        self._push, self._access = push, access

    def refs(self) -> dict[str, str]:
        """Return the server's refs. Raise NotSent."""
        path = self._push.path + "/info/refs?service=git-receive-pack"
        try:
            with closing(self._connect()) as connection:
                connection.request("GET", path, headers=self._headers())
                answer = connection.getresponse()
                body = self._body(answer, _MOST_REFS)
        except (OSError, http.client.HTTPException) as error:
            raise NotSent(_words(error)) from error
        if answer.status != 200:
            raise NotSent(self._refusal(answer), by_server=answer.status < 500)
        try:
            return dict(parse_advertisement(body).refs)
        except ValueError as error:
            raise NotSent(str(error)) from error

    def send(self, body: BinaryIO, length: int, commands: Sequence[RefCommand], *, side_band: bool) -> PushReport:
        """Send a push, and return its report. Raise NotSent or LostAnswer."""
        kind = "application/x-git-receive-pack-"
        headers = {"Content-Type": f"{kind}request", "Accept": f"{kind}result", "Content-Length": str(length)}
        try:
            connection = self._connect()
        except OSError as error:
            raise NotSent(_words(error)) from error
        try:
            connection.request("POST", self._push.path + "/git-receive-pack", body, self._headers() | headers)
            answer = connection.getresponse()
            data = self._body(answer, _MOST_REPORT)
        except (OSError, http.client.HTTPException) as error:
            raise LostAnswer(_words(error)) from error
        finally:
            connection.close()
        if 300 <= answer.status < 500:
            raise NotSent(self._refusal(answer), by_server=True)
        if answer.status != 200:
            raise LostAnswer(f"the server answered {answer.status}")
        try:
            return parse_report(data, commands, side_band=side_band)
        except ValueError as error:
            raise LostAnswer(str(error)) from error

    def _headers(self) -> dict[str, str]:
        given = self._access.authorization
        return {"User-Agent": _AGENT} | ({given[0]: given[1]} if given is not None else {})

    def _refusal(self, answer: http.client.HTTPResponse) -> str:
        if answer.status in (401, 403, 404) and self._access.authorization is None:
            host = self._push.host if self._push.port == 443 else f"{self._push.host}:{self._push.port}"
            return f"the server answered {answer.status}: mudroom net credential NAME {host} gives it a login"
        return f"the server answered {answer.status}"

    @staticmethod
    def _body(answer: http.client.HTTPResponse, most: int) -> bytes:
        data = answer.read(most + 1)
        if len(data) > most or (answer.length or 0) > 0:
            raise http.client.HTTPException("the answer is cut off, or too long")
        return data

    def _connect(self) -> http.client.HTTPConnection:
        """Raise OSError."""
        push = self._push
        decision = decide(Request(push.host, push.port, "POST", push.path + "/git-receive-pack"), self._access.rules)
        if decision.action == "deny" or decision.rule is None:
            raise PermissionError(0, decision.reason)
        proxy = self._access.proxy if not decision.rule.private else None
        if proxy is not None:
            channel = self._tunnel(proxy)
        else:
            addresses = look_up(push.host, push.port)
            allowed = decision._replace(action="allow")
            reason = vet(allowed, addresses, LocalAddresses(addresses), rules=self._access.rules, port=push.port)
            if reason is not None:
                raise PermissionError(0, reason)
            channel = _first(addresses, push.port)
        if push.scheme == "https":
            context = client_context(self._access.roots, ("http/1.1",))
            try:
                channel = context.wrap_socket(channel, server_hostname=push.host)
            except BaseException:
                channel.close()
                raise
        connection = http.client.HTTPConnection(push.host, push.port, timeout=_PATIENCE)
        connection.sock = channel
        return connection

    def _tunnel(self, proxy: Upstream) -> socket.socket:
        place = http.client.HTTPConnection(proxy.authority.host.text, proxy.authority.port, timeout=_PATIENCE)
        login = b2a_base64(proxy.credentials, newline=False).decode() if proxy.credentials else ""
        headers = {"Proxy-Authorization": f"Basic {login}"} if login else {}
        place.set_tunnel(self._push.host, self._push.port, headers)
        place.connect()
        return place.sock


def look_up(host: str, port: int) -> list[bytes]:
    """Return a host's addresses. Raise OSError."""
    rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [socket.inet_pton(family, str(place[0])) for family, _type, _protocol, _name, place in rows]


def _first(addresses: Sequence[bytes], port: int) -> socket.socket:
    """Return a connection to the first address that takes one."""
    problem = OSError("it has no address")
    for packed in addresses:
        try:
            return socket.create_connection((show_address(packed), port), timeout=_PATIENCE)
        except OSError as error:
            problem = error
    raise problem


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__
