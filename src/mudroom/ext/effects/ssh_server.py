"""Git over SSH in the gate, in place of a held host's own server.

The server takes every login, for the sandbox has no key, and serves ``git-upload-pack`` and ``git-receive-pack``
alone. Its host key is the vault's authority's, which the sandbox knows. The protocol's version is 0, as over HTTP.
gitprotocol-pack(5); asyncssh.
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import AbstractAsyncContextManager

from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.ext.effects.message import MOST_BODY, HeldQuestion, is_ssh_repository, is_user
from mudroom.ext.effects.server import Streams, admit, decoded, desk, pair
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
from mudroom.net.gate.exchange import Exchange
from mudroom.net.gate.fork_dials import ForkUnreachable
from mudroom.net.gate.peer import Peer
from mudroom.net.gate.relay import relay
from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from asyncssh import SSHServerProcess

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
