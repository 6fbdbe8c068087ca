"""Servers in the gate in place of a held host's own: git over SSH, and mail; and the questions to the host process.

Rules of this file: the servers speak to the sandbox, and never to the host: the user's own ssh does, which the host
process starts (``ssh_client.py``), and the release. A client is told of success only when its effect is durable.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from mudroom.core.network.host_pattern import LOCALHOST
from mudroom.core.network.inspection import Inspection
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.ext.effects.mail import MOST_MAIL
from mudroom.ext.effects.message import LONGEST, MOST_BODY, HeldAnswer, HeldQuestion, is_ssh_repository, is_user
from mudroom.ext.effects.wire import (
    FLUSH,
    LONGEST_HEAD,
    MOST_REFS,
    NONE,
    IncompletePush,
    PushHead,
    overlaid,
    packet,
    parse_advertisement,
    parse_push,
    show_advertisement,
    show_answer,
    show_missing,
)
from mudroom.ext.inspection.authority import issuer
from mudroom.net.gate.dial import adopt
from mudroom.net.gate.exchange import Exchange
from mudroom.net.gate.fork_dials import ForkUnreachable
from mudroom.net.gate.peer import Peer
from mudroom.net.gate.relay import relay

if TYPE_CHECKING:
    from asyncssh import SSHServerProcess

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def admit(client: Peer, exchange: Exchange, library: str, extra: str, memory: int) -> Inspection:
    """Load a protocol's library, and charge the connection's memory. Raise RefusedExchange."""
    try:
        await asyncio.to_thread(__import__, library)  # it takes the time of a hundred requests
    except ImportError:
        raise exchange.refuse(f"this is held with {library}: pip install 'mudroom[{extra}]'") from None
    inspection = exchange.guard.inspection
    if inspection is None or not await exchange.guard.reserve(client, memory):
        raise exchange.refuse("its rule holds, and its command's connections hold all that they may")
    return inspection


def pair() -> tuple[Peer, socket.socket]:
    """Return the two ends of a connection within the gate: for a relay, and for a protocol."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    return adopt(ours), theirs


def named(exchange: Exchange) -> str:
    """Return the host as its rule names it: a client of ``localhost`` comes to one of its addresses."""
    rule = exchange.holding
    return LOCALHOST if rule is not None and rule.pattern == LOCALHOST else exchange.host


@asynccontextmanager
async def desk(exchange: Exchange, question: HeldQuestion, host: str = "") -> AsyncIterator[Streams]:
    """Ask the host process, and hold the connection open. ``host``: as the client names it; empty: as the rule does.
    Raise ForkUnreachable, OSError, or ValueError if the question is too long."""
    dials, host, line = exchange.guard.dials, host or named(exchange), msgspec.json.encode(question) + b"\n"
    if len(line) > LONGEST:
        raise ValueError("headers that are so long")
    connection = await dials.dial(host, exchange.port, "")
    try:
        reader, writer = await asyncio.open_connection(sock=connection.socket)
        try:
            writer.write(line)
            await writer.drain()
            yield reader, writer
        finally:
            writer.close()
    finally:
        dials.left(host)


def decoded(answer: bytes) -> HeldAnswer:
    """Raise ValueError if it is none."""
    try:
        return msgspec.json.decode(answer, type=HeldAnswer)
    except msgspec.DecodeError:
        raise ValueError("it could not be stored") from None


# --- git over SSH ---
#
# The server takes every login, for the sandbox has no key, and serves ``git-upload-pack`` and ``git-receive-pack``
# alone. Its host key is the vault's authority's, which the sandbox knows. The protocol's version is 0, as over HTTP.
# gitprotocol-pack(5); asyncssh.

SSH_MEMORY = 1 << 20
"""Bytes for a connection: its sessions' windows, and asyncssh's state."""
_MOST_SESSIONS = 8
_WINDOW = 64 << 10
_PIECE = 64 << 10
_WANTS = 16 << 10
"""Bytes of a fetch in which a wanted object is looked for: the wants come first."""
_NO_COMMAND = (
    "its ssh client ended before a command: the gate holds pushes of OpenSSH, which knows its key and needs none; "
    "libraries of ssh, as libgit2 and JGit have, push over https"
)
_COMMAND = regex(r"git[- ](upload|receive)-pack '([^']{1,500})'")


async def serve_ssh(client: Peer, exchange: Exchange) -> None:
    """Serve a connection to its end. Raise RefusedExchange."""
    inspection = await admit(client, exchange, "asyncssh", "ssh", SSH_MEMORY)
    import asyncssh

    opened: list[SSHServerProcess[bytes]] = []
    count = 0

    class Server(asyncssh.SSHServer):
        def begin_auth(self, username: str) -> bool:
            return not is_user(username)

        def session_requested(self) -> SSHServerProcess[bytes] | bool:
            nonlocal count
            count += 1
            if len(opened) >= _MOST_SESSIONS:
                return False
            opened.append(asyncssh.SSHServerProcess(serve, None, 3, False))
            return opened[-1]

    async def serve(process: SSHServerProcess[bytes]) -> None:
        await _Command(exchange, process).run()
        opened.remove(process)

    near, theirs = pair()
    passing = asyncio.ensure_future(relay(client, near))
    try:
        key = asyncssh.import_private_key(inspection.authority.partition("-----END CERTIFICATE-----\n")[2])
        closed: dict[str, Any] = dict.fromkeys(("encoding", "allow_pty", "agent_forwarding", "gss_host"))
        connection = await asyncssh.run_server(
            theirs, server_factory=Server, server_host_keys=[key], window=_WINDOW, compression_algs=None, **closed
        )
        await connection.wait_closed()
    except (asyncssh.Error, OSError, TimeoutError) as error:
        exchange.error = f"ssh: {error or 'it ended'}"
    finally:
        theirs.close()
        await passing
    if not count:
        raise exchange.refuse(_NO_COMMAND)


class _Command:
    """One command of an SSH connection."""

    def __init__(self, exchange: Exchange, process: SSHServerProcess[bytes]) -> None:
        self._exchange, self._process = exchange, process
        self._user: str = process.get_extra_info("username")
        self._path = ""

    async def run(self) -> None:
        import asyncssh

        status = 128
        try:
            await self._serve()
            status = 0
        except (ForkUnreachable, ValueError) as refused:
            self._exchange.error = f"this cannot be held: {refused}"
            self._process.stderr.write(f"mudroom: this cannot be held: {refused}\n".encode())
        except (OSError, EOFError, asyncssh.Error):
            pass  # an end is gone
        finally:
            self._process.exit(status)

    async def _serve(self) -> None:
        command = self._process.command or "a shell"
        match = _COMMAND.fullmatch(command)
        if match is None or not is_ssh_repository(match[2]):
            raise ValueError(f"{show(command.encode())[:100]} over ssh: git's fetch and push can")
        self._path = match[2]
        await (self._fetch() if match[1] == "upload" else self._push())

    # --- reading ---

    async def _fetch(self) -> None:
        held = await self._held()
        async with self._desk("ssh", "upload") as (reader, writer):
            self._process.stdout.write(await _refs(reader, "upload", held))
            up = asyncio.ensure_future(self._pass_wants(writer, held))
            try:
                while data := await reader.read(_PIECE):
                    self._process.stdout.write(data)
                    await self._process.stdout.drain()
                if up.done():
                    await up
            finally:
                up.cancel()

    async def _pass_wants(self, writer: asyncio.StreamWriter, held: dict[str, str]) -> None:
        first = b""
        while data := await self._process.stdin.read(_PIECE):
            if len(first) < _WANTS:
                first += data
                wanted = next((ref for ref, new in held.items() if b"want " + new.encode() in first), "")
                if wanted:
                    self._process.stdout.write(show_missing(wanted))
                    break
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    # --- pushing ---

    async def _push(self) -> None:
        held = await self._held()
        async with self._desk("ssh", "receive") as (reader, writer):
            told = await _refs(reader, "receive", held)
            writer.write(FLUSH)  # nothing is pushed now
            await writer.drain()
        self._process.stdout.write(told)
        head, pushed = await self._head()
        if not pushed.commands:
            return
        async with self._desk("push") as (reader, writer):
            writer.write(head)
            await self._pass_pack(writer, head, pushed)
            writer.write_eof()
            answer = decoded(await reader.read(-1))
        self._process.stdout.write(show_answer(answer.capabilities, answer.refs, answer.problem))
        await self._process.stdout.drain()

    async def _head(self) -> tuple[bytes, PushHead]:
        """Return the bytes that have come when a push's head is there, and the head. Raise ValueError."""
        head = b""
        while data := await self._process.stdin.read(_PIECE):
            head += data
            try:
                return head, parse_push(head)
            except IncompletePush:
                if len(head) > LONGEST_HEAD:
                    raise
        if not head:
            return head, PushHead((), (), (), 0)
        raise IncompletePush("a push that is cut off")

    async def _pass_pack(self, writer: asyncio.StreamWriter, head: bytes, pushed: PushHead) -> None:
        """Pass the rest of a push on. A client waits for the answer after the pack's last byte and says no end: the
        pack ends with its own SHA-1."""
        if all(command.new == NONE for command in pushed.commands):
            return
        digest, last, size, data = hashlib.sha1(usedforsecurity=False), b"", len(head), head[pushed.pack :]
        while True:
            last += data
            digest.update(last[:-20])
            last = last[-20:]
            if last == digest.digest():
                return
            await writer.drain()
            data = await self._process.stdin.read(_PIECE)
            size += len(data)
            if not data or size > MOST_BODY:
                raise ValueError(f"a push of more than {MOST_BODY >> 20} MiB" if data else "a push that is cut off")
            writer.write(data)

    # --- the host process ---

    async def _held(self) -> dict[str, str]:
        async with self._desk("refs") as (reader, writer):
            writer.write_eof()
            return decoded(await reader.read(-1)).held

    def _desk(self, kind: str, service: str = "") -> AbstractAsyncContextManager[Streams]:
        return desk(self._exchange, HeldQuestion(kind, "ssh", self._path, login=self._user, method=service))


async def _refs(reader: asyncio.StreamReader, service: str, held: dict[str, str]) -> bytes:
    """Return the refs that a server tells, with the held ones. Raise ValueError."""
    told, name = bytearray(packet(f"# service=git-{service}-pack\n".encode()) + FLUSH), len(FLUSH)
    start = len(told)
    while not told.endswith(FLUSH) or name or len(told) == start:
        digits = await reader.readexactly(4)
        name = max(int(digits, 16) - 4, 0)
        content = await reader.readexactly(name)
        if content.startswith(b"ERR "):
            raise ValueError(show(content[4:].strip()))
        told += digits + content
        if len(told) > MOST_REFS:
            raise ValueError(f"the server's answer is longer than {MOST_REFS >> 20} MiB")
    return show_advertisement(overlaid(parse_advertisement(bytes(told)), held))[start:]


# --- mail ---
#
# A client's login is a placeholder, or none. It may use TLS or STARTTLS, with the vault's authority, or none: the
# connection ends in the gate. The release uses TLS as the client did, and STARTTLS wherever the server has it.
# RFC 5321, RFC 3207, RFC 4954, RFC 8314; aiosmtpd.

MAIL_MEMORY = 2 * MOST_MAIL
"""Bytes for a connection: aiosmtpd has a mail's lines, and the mail."""


async def serve_mail(client: Peer, exchange: Exchange, scheme: Literal["smtp", "smtps"]) -> None:
    """Serve a connection to its end. ``smtps``: it is the inside of TLS. Raise RefusedExchange."""
    inspection = await admit(client, exchange, "aiosmtpd.smtp", "mail", MAIL_MEMORY)
    from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

    login: list[tuple[str, str]] = []

    def authenticate(_server: Any, _session: Any, _envelope: Any, _mechanism: str, given: Any) -> Any:
        password = given.password.decode("latin-1") if isinstance(given, LoginPassword) else ""
        known = {(one.placeholder, one.host, one.port): one.name for one in inspection.credentials}
        name = known.get((password, exchange.host, exchange.port), "")
        if not name:
            why = f"a login of the command's own: mudroom net credential NAME {exchange.host}:{exchange.port} gives one"
            return AuthResult(success=False, handled=False, message=f"535 5.7.8 mudroom: this cannot be held: {why}")
        login[:] = [(name, f"basic {given.login.decode('latin-1')}:{{}}")]
        return AuthResult(success=True)

    class Handler:
        async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
            headers = [("from", envelope.mail_from or ""), *(("to", to) for to in envelope.rcpt_tos)]
            question = HeldQuestion("mail", scheme, "/", *(login[0] if login else ("", "")), headers=headers)
            try:
                async with desk(exchange, question) as (reader, writer):
                    writer.write(envelope.content)
                    await writer.drain()
                    writer.write_eof()
                    answer = decoded(await reader.read(-1))
            except (OSError, ForkUnreachable, ValueError) as error:
                return f"451 4.3.0 mudroom: this cannot be held: {error}"
            if answer.problem:
                return f"550 5.7.1 mudroom: this cannot be held: {answer.problem}".encode("ascii", "replace").decode()
            return "250 2.0.0 held: it will be sent when the fork is applied"

    loop = asyncio.get_running_loop()
    logging.getLogger("mail.log").disabled = True  # it tells a client's faults on stderr
    near, theirs = pair()
    context = issuer(inspection.authority).context(exchange.host, "http/1.1") if scheme == "smtp" else None
    options: dict[str, Any] = {"auth_require_tls": False, "authenticator": authenticate, "tls_context": context}
    options |= {"hostname": exchange.host, "ident": "mudroom holds this mail", "data_size_limit": MOST_MAIL}
    await loop.connect_accepted_socket(lambda: SMTP(Handler(), enable_SMTPUTF8=True, loop=loop, **options), theirs)
    await relay(client, near)


async def serve_other(client: Peer, server: Peer, exchange: Exchange, mail: Literal["smtp", "smtps"] = "smtp") -> None:
    """Serve a connection that is not HTTP, at a host that holds. ``server``: the host's, which speaks SSH, SMTP, or
    nothing that can be held. ``mail``: ``smtps`` for the inside of TLS. Raise RefusedExchange."""
    begins = bytes(client.buffer[:4]), bytes(server.buffer[:3])
    server.cut()
    if exchange.guard.all_hosts:
        raise exchange.refuse("this cannot be held: effects of another machine's forks")
    if begins[0] == b"SSH-" or begins[1] == b"SSH":
        await serve_ssh(client, exchange)
    elif begins[1] == b"220":  # RFC 5321 4.3.1: an SMTP server speaks first
        await serve_mail(client, exchange, mail)
    else:
        raise exchange.refuse("its rule requires inspection, but it is neither TLS nor HTTP")
    exchange.sent = client.count
    exchange.report()
