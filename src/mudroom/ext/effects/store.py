"""A fork's held effects: git pushes, publishes of packages, and other requests.

    <vault>/forks/<fork>/effects/<number>/effect.json, request   one that waits, and its body as the client sent it
    <vault>/applies/<apply>/effects/<number>.json                one that the apply has sent: for its undo

They live as long as their fork and their apply do. Rules of this file: an effect is durable before its client hears of
it, and each state before the act that it announces. An effect is ``held``; ``sending`` from before its first byte to
the answer; ``refused`` by the server, or ``unknown`` if the answer was lost. A sent effect leaves the fork.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from mudroom.core.network.push import EffectKind, PushState
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.ext.effects.mail import Mail, parse_mail
from mudroom.ext.effects.message import MOST_BODY, HeldQuestion, Scheme
from mudroom.ext.effects.publish import PackageRequest, Publish, parse_publish
from mudroom.ext.effects.request import HttpRequest, names_method, parse_request
from mudroom.ext.effects.wire import LONGEST_HEAD, PushHead, RefCommand, parse_push
from mudroom.stage import disk, safe_open
from mudroom.stage.layers.layer import remove_tree
from mudroom.vault.store.fork import PUSHES
from mudroom.vault.sync import sync_directory

MOST_HELD = 100
"""Held effects of one fork."""
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | disk.O_NOFOLLOW | disk.O_CLOEXEC


class HeldEffect(NamedTuple):
    number: int
    time: int
    """When it was held, in nanoseconds since 1970."""
    scheme: Scheme
    host: str
    port: int
    path: str
    """Of the repository; of a publish its request's; of another request with its query."""
    publish: Publish | None = None
    request: HttpRequest | None = None
    mail: Mail | None = None
    """All three None: it is a push."""
    commands: tuple[RefCommand, ...] = ()
    capabilities: tuple[str, ...] = ()
    pack: int = 0
    """Where the pack begins in the request."""
    size: int = 0
    digest: str = ""
    """SHA-256 of the request."""
    credential: str = ""
    login: str = ""
    """As in ``message.HeldQuestion``."""
    state: PushState = "held"
    apply: str = ""
    """The apply that sends it, or has sent it."""
    why: str = ""
    remote: tuple[str, ...] = ()
    """The server's lines for people."""
    moved: tuple[str, ...] = ()
    """The refs that the server has moved; of another effect its label."""

    @property
    def kind(self) -> EffectKind:
        if self.mail is not None:
            return "mail"
        return "publish" if self.publish is not None else "request" if self.request is not None else "push"

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.number}"

    @property
    def labels(self) -> tuple[str, ...]:
        """What it changes at the server."""
        if self.request is not None:
            return (self.request.label(self.path),)
        if self.mail is not None:
            return (self.mail.label,)
        return tuple(one.ref for one in self.commands) if self.publish is None else (self.publish.label,)

    @property
    def remote_url(self) -> str:
        usual = {"http": 80, "https": 443, "ssh": 22, "smtp": 25, "smtps": 465}[self.scheme]
        host = f"[{self.host}]" if ":" in self.host else self.host
        path = self.path if self.kind not in ("request", "mail") else ""  # its label has it
        if self.scheme == "ssh":
            host = f"{self.login}@{host}"
            path = path if path.startswith("/") else f"/./{path}"
        return f"{self.scheme}://{host}{'' if self.port == usual else f':{self.port}'}{path}"

    def event(self) -> dict[str, object]:
        """Return what the journal keeps."""
        known = {"effect": self.name, "remote": self.remote_url, "sha256": self.digest, "state": self.state}
        names = list(self.labels)
        if self.request is not None:  # its query may have a secret
            names = [f"{self.request.method} {self.path.partition('?')[0]}"]
        return {**known, "names": names, "apply": self.apply, "why": self.why}

    @property
    def repository(self) -> tuple[str, str, int, str]:
        """The repository, whichever of its two usual paths the push has named; or the published file; or the path of
        another request; or a mail's key."""
        if self.mail is not None:
            return self.scheme, self.host, self.port, self.mail.key or self.digest
        path = self.path.rstrip("/").removesuffix(".git") if self.publish is None else self.publish.place
        return self.scheme, self.host, self.port, path

    @property
    def key(self) -> str:
        """The text by which a second request for the same effect is known; empty: none."""
        if self.mail is not None:
            return self.mail.key
        return self.labels[0] if self.request is not None and self.request.key else ""

    @property
    def page_hosts(self) -> tuple[str, ...]:
        """The hosts that tell what is published, first its list. Some registries have other names for that."""
        others = {"upload.pypi.org": ("pypi.org",), "crates.io": ("index.crates.io", "static.crates.io")}
        return others.get(self.host, (self.host,))


class Rejected(Exception):
    """An effect that is not held. The text is printable, and ends the sentence "this cannot be held: …"."""

    def __init__(self, why: str, head: PushHead | None = None) -> None:
        super().__init__(why)
        self.head = head


def effects(place: bytes) -> list[HeldEffect]:
    """Return the effects in a fork, oldest first. ``place``: the fork's directory. Raise MudroomError if one is
    damaged."""
    return [_load(place + PUSHES + b"/%d/effect.json" % number) for number in _numbers(place + PUSHES)]


def sent(place: bytes) -> list[HeldEffect]:
    """Return the effects that an apply has sent, in this order. ``place``: the apply's directory."""
    return [_load(place + PUSHES + b"/%d.json" % number) for number in _numbers(place + PUSHES)]


def _numbers(place: bytes) -> list[int]:
    try:
        names = os.listdir(place)
    except FileNotFoundError:
        return []
    return sorted(int(stem) for stem in (name.removesuffix(b".json") for name in names) if stem.isdigit())


def _load(path: bytes) -> HeldEffect:
    try:
        return msgspec.json.decode(safe_open.read(path), type=HeldEffect)
    except (msgspec.DecodeError, FileNotFoundError) as error:
        raise MudroomError(
            f"{show(path)} cannot be read: {error}", "mudroom discard FORK drops the fork with it"
        ) from error


def save(place: bytes, push: HeldEffect) -> None:
    """Replace a fork's effect durably."""
    _write(place + PUSHES + b"/%d/effect.json" % push.number, push)


def save_sent(place: bytes, push: HeldEffect) -> None:
    """Note an effect in the directory of the apply that has sent it, durably."""
    with suppress(FileExistsError):
        os.mkdir(place + PUSHES, 0o700)
        sync_directory(place)
    _write(place + PUSHES + b"/%d.json" % push.number, push)


def _write(path: bytes, push: HeldEffect) -> None:
    safe_open.replace(path, msgspec.json.encode(push))
    sync_directory(os.path.dirname(path))


def remove(place: bytes, push: HeldEffect) -> None:
    """Remove a fork's effect, whole or not at all, durably."""
    gone = place + PUSHES + b"/.old"
    if os.path.isdir(gone):  # mudroom was killed below
        remove_tree(gone)
    disk.rename_path(place + PUSHES + b"/%d" % push.number, gone)
    sync_directory(place + PUSHES)
    remove_tree(gone)


def open_request(place: bytes, push: HeldEffect) -> int:
    """Return a descriptor for an effect's body. Raise MudroomError if it is not the body that was held."""
    path = place + PUSHES + b"/%d/request" % push.number
    descriptor = safe_open.open_regular(path)
    digest, at = hashlib.sha256(), 0
    while block := disk.pread(descriptor, 1 << 20, at):
        digest.update(block)
        at += len(block)
    if digest.hexdigest() != push.digest:
        os.close(descriptor)
        raise MudroomError(f"{show(path)} is not what was held", "mudroom discard FORK drops the fork with it")
    return descriptor


def package(place: bytes, effect: HeldEffect) -> PackageRequest:
    """Return what a fork's held publish publishes. Raise MudroomError as ``open_request`` does."""
    with os.fdopen(open_request(place, effect), "rb") as request:
        kind = effect.publish.content_type if effect.publish is not None else ""
        return parse_publish(effect.path, kind, request.read())


def held_refs(held: Sequence[HeldEffect], repository: tuple[str, str, int, str]) -> dict[str, str]:
    """Return a repository's refs as its held pushes will leave them."""
    waiting = (push for push in held if push.state == "held" and push.repository == repository)
    return {command.ref: command.new for push in waiting for command in push.commands}


class IncomingEffect:
    """An effect that is being received."""

    def __init__(self, place: bytes) -> None:
        """``place``: the fork's directory."""
        self._place, self._above = place, place + PUSHES
        with suppress(FileExistsError):
            os.mkdir(self._above, 0o700)
            sync_directory(place)
        self._new = self._above + b"/.new-" + os.urandom(6).hex().encode()
        os.mkdir(self._new, 0o700)
        self._file = os.open(self._new + b"/request", _NEW, 0o600)
        self._digest, self._size = hashlib.sha256(), 0

    def add(self, data: bytes) -> None:
        """Raise Rejected if it becomes too long."""
        self._size += len(data)
        if self._size > MOST_BODY:
            raise Rejected(f"a request of more than {MOST_BODY >> 20} MiB")
        self._digest.update(data)
        while data:
            data = data[os.write(self._file, data) :]

    def keep(
        self, draft: HeldEffect, asked: HeldQuestion, requests: Sequence[str]
    ) -> tuple[HeldEffect | None, list[HeldEffect]]:
        """Store the effect durably. Return it, and the refused and unknown effects that it replaces; None if it is a
        push that names no ref. ``draft``: with the request's place. ``requests``: as in ``HostRule``. Raise
        Rejected."""
        push, head = self._push(draft) if asked.kind == "push" else (self._other(draft, asked, requests), None)
        if not push.labels:
            return None, []
        others = effects(self._place)
        if len(others) >= MOST_HELD:
            raise Rejected(f"there are {MOST_HELD} held effects already", head)
        digest = self._digest.hexdigest()
        twin = next((one for one in others if one.key and (one.key, one.state) == (push.key, "held")), None)
        if twin is not None:
            if twin.digest != digest:
                raise Rejected(f"{push.labels[0]}: its key is held already, with another content")
            return twin, []  # the client has asked again
        if push.publish is not None and (push.repository, "held") in ((one.repository, one.state) for one in others):
            raise Rejected(f"{push.publish.label}, which is held already: a published version is not replaced")
        number = max((push.number for push in others), default=0) + 1
        push = push._replace(number=number, size=self._size, digest=digest)
        os.fsync(self._file)
        safe_open.replace(self._new + b"/effect.json", msgspec.json.encode(push))
        sync_directory(self._new)
        disk.rename_path(self._new, self._above + b"/%d" % number)
        sync_directory(self._above)
        same = (one for one in others if one.repository == push.repository and one.state in ("refused", "unknown"))
        # this push is made from what the server has since
        replaced = [other for other in same if set(push.labels).issuperset(other.labels)]
        for other in replaced:
            remove(self._place, other)
        return push, replaced

    def _other(self, draft: HeldEffect, asked: HeldQuestion, requests: Sequence[str]) -> HeldEffect:
        body, kind = disk.pread(self._file, self._size, 0), asked.content_type
        try:
            if asked.kind == "mail":
                return draft._replace(mail=parse_mail(asked.headers, body))
            if asked.kind == "publish":
                try:
                    publish = parse_publish(draft.path, kind, body).publish
                    return draft._replace(publish=publish._replace(content_type=kind))
                except ValueError:
                    if not names_method(requests, asked.method):
                        raise
            return draft._replace(request=parse_request(asked.method, draft.path, asked.headers, body, requests))
        except ValueError as error:
            raise Rejected(str(error)) from None

    def _push(self, draft: HeldEffect) -> tuple[HeldEffect, PushHead]:
        try:
            head = parse_push(disk.pread(self._file, LONGEST_HEAD, 0))
        except ValueError as error:
            raise Rejected(str(error) if str(error).startswith("a push") else "a push that is not understood") from None
        if head.commands:
            self._check_pack(head)
        return draft._replace(pack=head.pack, commands=head.commands, capabilities=head.capabilities), head

    def _check_pack(self, head: PushHead) -> None:
        start = disk.pread(self._file, 12, head.pack)
        if all(command.new == "0" * 40 for command in head.commands) and not start:
            return
        if start[:4] != b"PACK" or int.from_bytes(start[4:8], "big") not in (2, 3):
            raise Rejected("a push whose pack is damaged", head)
        digest, at, end = hashlib.sha1(usedforsecurity=False), head.pack, self._size - 20
        while at < end:
            block = disk.pread(self._file, min(1 << 20, end - at), at)
            digest.update(block)
            at += len(block)
        if disk.pread(self._file, 20, end) != digest.digest():
            raise Rejected("a push whose pack is damaged", head)

    def close(self) -> None:
        os.close(self._file)
        if os.path.isdir(self._new):
            remove_tree(self._new)
