"""The gate's part: requests to a host with a ``hold`` rule.

Rules of this file: a request that is not known to only read is an effect, which the host process stores, or is refused.
The client is told of success only when the effect is durable. What is told of a repository's refs and of a package's
versions has the held ones in it; the version of git's protocol is 0, whose refs are told in one place.
"""

from __future__ import annotations

import asyncio
import os
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Literal
from weakref import WeakKeyDictionary

import h11
import msgspec

from mudroom.core.network.host_pattern import LOCALHOST
from mudroom.core.network.host_rules import held_words
from mudroom.core.network.preset import EFFECTS
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.ext.effects.message import MOST_BODY, HeldAnswer, HeldQuestion, is_repository
from mudroom.ext.effects.publish import CRATE, canonical, index_of, is_crates, is_place
from mudroom.ext.effects.publish import overlaid as page_with
from mudroom.ext.effects.request import is_download, is_query, names_method
from mudroom.ext.effects.server import Streams, decoded, desk, named
from mudroom.ext.effects.wire import (
    MOST_REFS,
    overlaid,
    parse_advertisement,
    show_advertisement,
    show_answer,
    show_missing,
)
from mudroom.net.gate.exchange import Exchange, RefusedExchange
from mudroom.net.gate.fork_dials import ForkUnreachable
from mudroom.net.gate.guard import Guard
from mudroom.net.gate.inspector import RefusedResponse, Rewrite
from mudroom.net.gate.peer import Peer, PeerGone
from mudroom.net.gate.response_writer import ResponseWriter
from mudroom.net.gate.sanitizer import CredentialSanitizer, Field
from mudroom.net.protocol.head import RequestHead

_WANTS = 16 << 10
"""Bytes of a fetch in which a wanted object is looked for: the wants come first."""
_MOST_INDEXES = 20
_READS = ("GET", "HEAD", "OPTIONS")
_UPLOAD, _RECEIVE, _REFS = "/git-upload-pack", "/git-receive-pack", "/info/refs"
_RESULT = "application/x-git-%s-pack-result"
_ADVERTISES = regex(rb"application/x-git-.*-advertisement")
_UNWANTED = (b"git-protocol", b"accept-encoding")
_UNWANTED_OF_PAGES = (b"accept-encoding", b"if-none-match", b"if-modified-since", b"range")

_OF_PAGE = (b"content-type", b"etag", b"last-modified", b"location")
_JSON = (b"application/json", b"application/vnd.git-lfs+json")
_LFS, _LFS_TYPE = "/info/lfs/", "application/vnd.git-lfs+json"

Kind = Literal["read", "query", "lfs", "refs", "fetch", "push", "publish", "request"]

_indexes: WeakKeyDictionary[Guard, set[tuple[str, int, str]]] = WeakKeyDictionary()
"""The indexes of crates that a command has read: host, port and path. A crate's publish does not name its index."""
_pages: WeakKeyDictionary[Guard, asyncio.Task[HeldAnswer]] = WeakKeyDictionary()
"""The held pages as a command's guard was told: each read is compared with them."""


class HeldRequest:
    """One request to a host whose effects are held."""

    def __init__(self, exchange: Exchange, head: RequestHead, path: bytes, rewrite: Rewrite) -> None:
        """Raise RefusedExchange if it can be neither let through nor held."""
        self._exchange, self._head, self._rewrite, self._path = exchange, head, rewrite, path
        place, _mark, query = path.decode("ascii", "replace").partition("?")
        self.kind: Kind
        self.kind, self._place = self._sort(place, query)
        self._held = HeldAnswer()

    @property
    def is_effect(self) -> bool:
        return self.kind in ("push", "publish", "request")

    def _sort(self, place: str, query: str) -> tuple[Kind, str]:
        exchange, method = self._exchange, self._exchange.method
        if exchange.guard.all_hosts:
            raise self._refused("pushes from another machine's forks")
        if (self._head.get(b"upgrade") or b"").lower() == b"websocket":  # another one is not passed on: cargo's h2c
            raise self._refused("a websocket")
        if method in _READS and not self._head.has_body:
            service = query in ("service=git-upload-pack", "service=git-receive-pack")
            if method == "GET" and service and place.endswith(_REFS):
                return "refs", self._repository_of(place, _REFS)
            return "read", place
        content_type = (self._head.get(b"content-type") or b"").lower()
        is_json = method == "PUT" and content_type.startswith(b"application/json") and "/-/" not in place
        is_form = method == "POST" and content_type.startswith(b"multipart/form-data")
        if (is_json or is_form or is_crates(method, place)) and not query and is_place(place):
            return "publish", place
        if method == "POST" and place.endswith(_UPLOAD) and not query:
            return "fetch", self._repository_of(place, _UPLOAD)
        if method == "POST" and place.endswith(_RECEIVE) and not query:
            return "push", self._repository_of(place, _RECEIVE)
        if _LFS in place:
            return "lfs", place
        reads = effects.reads.get(place, "") if (effects := EFFECTS.get(exchange.host)) and method == "POST" else ""
        if reads and not query:
            return "read" if reads == "always" else "query", place
        if self._is_named:
            return "request", self._path.decode("ascii", "replace")
        raise self._refused(f"{method} {show(place.encode())}"[:120])

    @property
    def _is_named(self) -> bool:
        """Whether the rule names requests with this method."""
        rule = self._exchange.holding
        return rule is not None and names_method(rule.requests, self._exchange.method)

    def _repository_of(self, place: str, end: str) -> str:
        repository = place.removesuffix(end)
        if not is_repository(repository):
            raise self._refused(f"a repository at {show(repository.encode())}"[:120])
        return repository

    def _refused(self, what: str) -> RefusedExchange:
        rule = self._exchange.holding
        source, held = ("", "") if rule is None else (rule.source or rule.pattern, held_words(rule))
        return self._exchange.refuse(f"this cannot be held: {what}; {source} holds {held} alone: ask, allow or deny it")

    # --- reading ---

    async def prepare(self, client: Peer, fields: list[Field]) -> tuple[list[Field], bool]:
        """Return the request's fields for the server, and whether the request has been answered here."""
        if self.kind in ("refs", "fetch"):
            self._held = await self._ask("refs")
            unwanted = _UNWANTED if self.kind == "refs" else _UNWANTED[:1]
            fields = [field for field in fields if field[0].lower().replace(b"_", b"-") not in unwanted]
        if self.kind == "fetch" and (missing := await self._wanted(client)):
            ref = next(ref for ref, new in self._held.held.items() if new == missing)
            writer = ResponseWriter(client, self._rewrite.sanitizer)
            await self._answer(client, writer, _RESULT % "upload", show_missing(ref))
            return fields, True
        if self.kind == "query" and not is_query(await self._peek(client)):
            raise self._refused("a GraphQL mutation, or a query that is not plainly one")
        if self.kind == "lfs" and not await self._is_lfs_download(client):
            text = f"mudroom: {self._refused('an upload or a lock of git LFS')}"  # git-lfs shows the text of JSON alone
            answer = msgspec.json.encode({"message": text})
            writer = ResponseWriter(client, self._rewrite.sanitizer)
            await self._answer(client, writer, _LFS_TYPE, answer, 403, b"Forbidden")
            return fields, True
        if self.kind == "read" and await self._is_held_page():
            self._held = await self._ask("page")
            if self._held.problem:
                raise self._refused(self._held.problem)
            if self._held.file is not None:
                writer = ResponseWriter(client, self._rewrite.sanitizer)
                await self._answer(client, writer, "application/octet-stream", self._held.file)
                return fields, True
            if self._held.page:
                fields = [field for field in fields if field[0].lower() not in _UNWANTED_OF_PAGES]
        return fields, False

    async def _is_held_page(self) -> bool:
        guard, path = self._exchange.guard, canonical(self._place)
        if not path or not is_place(self._place):
            return False
        if (index := index_of(path)) is not None and len(indexes := _indexes.setdefault(guard, set())) < _MOST_INDEXES:
            indexes.add((self._exchange.host, self._exchange.port, index))
        asked = _pages.get(guard)
        if asked is None or (asked.done() and (asked.cancelled() or asked.exception() is not None)):
            asked = _pages[guard] = asyncio.get_running_loop().create_task(self._ask("pages"))
        told = await asyncio.shield(asked)
        return any(
            path.endswith(page[1:]) if page.startswith("*") else path == page or path.startswith(page + "/")
            for page in told.refs
        )

    async def _peek(self, client: Peer, *, is_whole: bool = True) -> bytes:
        """Return the beginning of the request's body, which stays where it is. ``is_whole``: empty if that is not all,
        or not plain JSON by its header."""
        raw = self._head.get(b"content-length")
        length = int(raw) if raw is not None and self._head.get(b"expect") is None else 0
        if is_whole:
            kinds = [value.lower() for name, value in self._head.fields if name.lower() == b"content-type"]
            is_json = len(kinds) == 1 and kinds[0].partition(b";")[0].strip() in _JSON
            if length > _WANTS or not is_json or self._head.get(b"content-encoding") is not None:
                return b""
        length = min(length, _WANTS)
        while len(client.buffer) < length and await client.more():
            pass
        return bytes(client.buffer[:length])

    async def _is_lfs_download(self, client: Peer) -> bool:
        """https://github.com/git-lfs/git-lfs/tree/main/docs/api"""
        if self._exchange.method != "POST" or self._place.endswith(_LFS + "locks/verify"):
            return self._exchange.method == "POST"
        return self._place.endswith(_LFS + "objects/batch") and is_download(await self._peek(client))

    async def _wanted(self, client: Peer) -> str:
        """Return the held object that a fetch wants, or ""."""
        body = await self._peek(client, is_whole=False)
        if body and self._head.get(b"content-encoding") == b"gzip":
            try:
                body = zlib.decompressobj(31).decompress(body, _WANTS)
            except zlib.error:
                return ""  # the server answers
        return next((new for new in self._held.held.values() if b"want " + new.encode() in body), "")

    def writer(self, client: Peer, sanitizer: CredentialSanitizer | None) -> ResponseWriter:
        held, origin = self._held, self._origin()
        if self.kind == "refs":
            return _OverlayWriter(
                client,
                sanitizer,
                _is_advertisement,
                lambda _status, told: (show_advertisement(overlaid(parse_advertisement(told), held.held)), ""),
            )
        if held.page:
            return _OverlayWriter(
                client,
                sanitizer,
                lambda status, _fields: status in (200, 302, 303, 404),  # an index may send on to another one
                lambda status, told: page_with(held.page, origin, told if status == 200 else None),
            )
        return ResponseWriter(client, sanitizer)

    # --- pushing ---

    async def take(self, client: Peer, fields: list[Field]) -> bool:
        """Have an effect stored and answer it. Return whether another request may follow on the connection. ``fields``:
        as the client has sent them."""
        writer = ResponseWriter(client, self._rewrite.sanitizer)
        self._rewrite.request(self._exchange, self._exchange.holding, self._path, fields)  # refuses misused credentials
        credential, login, header = self._login(fields)
        headers = self._headers(fields, header) if self._is_named and self.kind != "push" else []
        async with self._desk(self.kind, credential, login, headers) as (reader, stored):
            length = await self._pass_body(client, writer, stored)
            answer = decoded(await reader.read(-1))
        self._exchange.sent = length
        if self.kind != "push":
            return await self._tell_stored(client, writer, answer)
        if not answer.refs:  # git's question whether it may push: a lone flush
            return await self._answer(client, writer, _RESULT % "receive", b"")
        report = show_answer(answer.capabilities, answer.refs, answer.problem)
        return await self._answer(client, writer, _RESULT % "receive", report)

    async def _tell_stored(self, client: Peer, writer: ResponseWriter, answer: HeldAnswer) -> bool:
        _pages.pop(self._exchange.guard, None)
        if answer.problem:
            said: dict[str, object] = {"error": (text := str(self._refused(answer.problem))), "success": False}
            said["errors"] = [{"detail": text}]
            reason, status = f"mudroom: {text}"[:200].encode("ascii", "replace"), 403
        elif answer.kind == "request":  # RFC 9110 15.3.3: it will be done later, and the text says so
            text = f"{', '.join(answer.refs)} will be sent when the fork is applied"
            said, reason, status = {"held": text}, b"Accepted", 202
        elif self._is_crates:
            text = f"held: {', '.join(answer.refs)} will be sent to the registry when the fork is applied"
            said, reason, status = {"ok": True, "warnings": {"other": [text]}}, b"OK", 200
        else:
            text = f"held: {', '.join(answer.refs)} will be published when the fork is applied"
            said, reason, status = {"ok": text, "success": True}, b"OK", 200
        notice = (b"npm-notice", text.encode("ascii", "replace"))
        return await self._answer(
            client, writer, "application/json", msgspec.json.encode(said), status, reason, [notice]
        )

    def _headers(self, fields: list[Field], login: bytes) -> list[tuple[str, str]]:
        """Return a request's headers without the one with its login. Raise RefusedExchange if another has one, or its
        query: it would be stored."""
        from mudroom.ext.inspection.foreign_credential import find_foreign

        kept = [field for field in fields if field[0].lower() != login]
        where = find_foreign(self._path, kept, (), lambda _cookie: False).where
        if where:
            host = self._exchange.host
            raise self._refused(f"a login in {where[0]}: mudroom net credential NAME {host} gives commands one")
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in kept]
        own = [credential.placeholder for credential in getattr(self._rewrite, "credentials", ())]
        if any(placeholder in value for placeholder in own for _name, value in headers):
            raise self._refused("a request with two logins")
        return headers

    def _login(self, fields: list[Field]) -> tuple[str, str, bytes]:
        """Return the credential whose placeholder is in the request, its header as a pattern, and that header."""
        from mudroom.ext.inspection.placeholder import in_basic

        for name, value in fields:
            for credential in getattr(self._rewrite, "credentials", ()):
                raw = credential.placeholder.encode()
                if name.decode("latin-1").lower() != credential.header:
                    continue
                if raw in value:
                    return credential.name, value.replace(raw, b"{}").decode("latin-1"), name.lower()
                if raw in (pair := in_basic(value)):
                    return credential.name, "basic " + pair.replace(raw, b"{}").decode("latin-1"), name.lower()
        return "", "", b""

    async def _pass_body(self, client: Peer, writer: ResponseWriter, stored: asyncio.StreamWriter) -> int:
        side, account = writer.connection, client.account
        side.receive_data(self._head.raw)
        side.next_event()
        if side.they_are_waiting_for_100_continue:
            await writer.informational(100, [])
        coding = (self._head.get(b"content-encoding") or b"identity").lower()
        if coding not in (b"identity", b"gzip"):
            raise self._refused(f"a body that is compressed by {show(coding)}")
        unpack = _unpacker() if coding == b"gzip" else None
        watch = self._rewrite.watch(self._exchange)
        length, fed = 0, 0
        try:
            while True:
                event = side.next_event()
                if event is h11.NEED_DATA:
                    if not client.buffer and not await client.more():
                        raise PeerGone("the client ended within a request")
                    account.recharge(fed, len(client.buffer))
                    fed = len(client.buffer)
                    side.receive_data(client.take(fed))
                elif isinstance(event, h11.Data):
                    for piece in unpack(bytes(event.data)) if unpack is not None else (bytes(event.data),):
                        length += len(piece)
                        if length > MOST_BODY:
                            raise self._refused(f"a request of more than {MOST_BODY >> 20} MiB")
                        if watch is not None:
                            watch(piece)
                        stored.write(piece)
                        await stored.drain()
                elif isinstance(event, h11.EndOfMessage):
                    stored.write_eof()
                    return length
                else:
                    raise PeerGone("the client ended within a request")
        except zlib.error:
            raise self._refused("a body that cannot be unpacked") from None
        finally:
            account.free(fed)

    async def _answer(
        self,
        client: Peer,
        writer: ResponseWriter,
        kind: str,
        body: bytes,
        status: int = 200,
        reason: bytes = b"OK",
        more: Sequence[Field] = (),
    ) -> bool:
        side = writer.connection
        if side.their_state is h11.IDLE:  # the request's body was not read: the connection ends with the answer
            side.receive_data(self._head.raw)
            side.next_event()
        fields = [
            (b"Content-Type", kind.encode()),
            *more,
            (b"Cache-Control", b"no-cache"),
            (b"Content-Length", b"%d" % len(body)),
        ]
        self._exchange.status = status
        self._exchange.received = len(body)
        await writer.head(status, fields, reason)
        if self._exchange.method != "HEAD":
            await writer.data(body)
        await writer.end()
        client.put_back(side.trailing_data[0])
        return (side.our_state, side.their_state) == (h11.DONE, h11.DONE)

    # --- the host process ---

    async def _ask(self, kind: str) -> HeldAnswer:
        async with self._desk(kind) as (reader, writer):
            writer.write_eof()
            return decoded(await reader.read(-1))

    @asynccontextmanager
    async def _desk(
        self, kind: str, credential: str = "", login: str = "", headers: Sequence[tuple[str, str]] = ()
    ) -> AsyncIterator[Streams]:
        content_type = (
            (self._head.get(b"content-type") or b"").decode("latin-1") if kind not in ("push", "refs") else ""
        )
        if kind == "publish" and self._is_crates:
            content_type = CRATE + self._index()
        question = HeldQuestion(
            kind, self._scheme, self._place, credential, login, content_type, self._exchange.method, list(headers)
        )
        try:
            async with desk(self._exchange, question, self._host) as streams:
                yield streams
        except (ForkUnreachable, ValueError) as error:
            raise self._refused(str(error)) from error
        except OSError as error:
            raise PeerGone("the host process ended") from error

    @property
    def _is_crates(self) -> bool:
        return is_crates(self._exchange.method, self._place)

    def _index(self) -> str:
        """Return the path of the crates' index to which a request belongs: among those that were read at its host, the
        one with the most of its path. Raise RefusedExchange if there is none."""
        host, port = self._exchange.host, self._exchange.port
        if host == "crates.io":
            return ""
        found = sorted(path for *place, path in _indexes.get(self._exchange.guard, ()) if place == [host, port])
        if not found:
            raise self._refused(
                "a crate of a registry whose index this command has not read here (cargo info reads it)"
            )
        return max(found, key=lambda path: len(os.path.commonpath([path or "/", self._place])))

    @property
    def _scheme(self) -> Literal["http", "https"]:
        return "https" if self._exchange.way == "https" else "http"

    @property
    def _host(self) -> str:
        """The host as the client names it: ``localhost`` is not its address."""
        name = (self._head.get(b"host") or b"").lower().partition(b":")[0].decode("ascii", "replace")
        in_plain = name if name == LOCALHOST == named(self._exchange) else self._exchange.host
        return str(getattr(self._rewrite, "host", in_plain))

    def _origin(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{self._scheme}://{host}:{self._exchange.port}"


class _OverlayWriter(ResponseWriter):
    """Writes a server's answer with what is held in it."""

    def __init__(
        self,
        client: Peer,
        sanitizer: CredentialSanitizer | None,
        is_changed: Callable[[int, list[Field]], bool],
        changed: Callable[[int, bytes], tuple[bytes, str]],
    ) -> None:
        """``changed``: returns the body for the client, and its content type ("": as it was), from the server's status
        and body; raises ValueError."""
        super().__init__(client, sanitizer)
        self._is_changed, self._changed = is_changed, changed
        self._told: bytearray | None = None
        self._status = 200
        self._fields: list[Field] = []

    async def head(self, status: int, fields: list[Field], reason: bytes) -> None:
        if not self._is_changed(status, fields):
            await super().head(status, fields, reason)
            return
        if any(name.lower() == b"content-encoding" for name, _value in fields):
            raise RefusedResponse("the server has compressed its answer although it was asked not to")
        self._told, self._status, self._fields = bytearray(), status, fields

    async def data(self, piece: bytes) -> None:
        if self._told is None:
            await super().data(piece)
            return
        self._told += piece
        if len(self._told) > MOST_REFS:
            raise RefusedResponse(f"this cannot be held: the server's answer is longer than {MOST_REFS >> 20} MiB")

    async def end(self) -> None:
        if self._told is not None:
            try:
                body, kind = self._changed(self._status, bytes(self._told))
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise RefusedResponse(f"this cannot be held: {error}") from error
            gone = {b"content-length", b"transfer-encoding", *(_OF_PAGE if kind else [])}
            fields = [field for field in self._fields if field[0].lower() not in gone]
            fields += [(b"Content-Type", kind.encode())] if kind else []
            await super().head(200, [*fields, (b"Content-Length", b"%d" % len(body))], b"OK")
            await super().data(body)
        await super().end()


def _is_advertisement(status: int, fields: list[Field]) -> bool:
    kinds = [value for name, value in fields if name.lower() == b"content-type"]
    if status == 200 and not (kinds and _ADVERTISES.fullmatch(kinds[0])):
        raise RefusedResponse("this cannot be held: the server does not speak git's smart protocol")
    return status == 200


def _unpacker() -> Callable[[bytes], list[bytes]]:
    """Return a function that unpacks gzip, in pieces of at most 256 KiB."""
    stream = zlib.decompressobj(31)

    def unpack(data: bytes) -> list[bytes]:
        pieces = [stream.decompress(data, 1 << 18)]
        while stream.unconsumed_tail:
            pieces.append(stream.decompress(stream.unconsumed_tail, 1 << 18))
            if len(pieces) > MOST_BODY >> 18:
                raise zlib.error("too much")
        return pieces

    return unpack
