"""The connection to a server when a held effect is sent, asked about or taken back.

Rules of this file: it runs in the user's process, with the user's credential, and to the host alone that it
names: its name is looked up and its addresses are vetted as the gate does, no redirection is followed, and all that
comes back is bounded. An error says whether the server may have acted.
"""

from __future__ import annotations

import http.client
import io
import smtplib
import socket
import ssl
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping, Sequence
from contextlib import closing
from urllib.parse import quote, urljoin, urlsplit

from mudroom.core.network.address import show_address
from mudroom.core.network.host_rules import HostRule, Request, decide, vet
from mudroom.core.system.closing import ClosedOnError
from mudroom.core.tree.path import show
from mudroom.ext.effects.mail import Mail
from mudroom.ext.effects.publish import NO_FILES, Publish, crate_rows, download_url, index_of, published
from mudroom.ext.effects.request import HttpRequest, is_done, seen, undo_words
from mudroom.ext.effects.ssh_client import PATIENCE, ssh_line, ssh_words, talk
from mudroom.ext.effects.store import HeldEffect
from mudroom.ext.effects.wire import (
    FLUSH,
    NONE,
    PushReport,
    RefCommand,
    packet,
    packets,
    parse_advertisement,
    parse_report,
    show_push,
)
from mudroom.ext.inspection.authority import client_context
from mudroom.net.gate.resolve import LocalAddresses
from mudroom.net.protocol.upstream import Upstream
from mudroom.typing import BinaryIO, NamedTuple, Protocol

_MOST_PAGE, _MOST_REPORT = 64 << 20, 4 << 20
_SIMPLE = "application/vnd.pypi.simple.v1+json, text/html;q=0.2"
_AGAIN = "in the fork: git fetch, git rebase --no-fork-point on it, git push; then apply it again"
"""Without the option git takes the held commits, which the remote branch had, for ones that upstream has dropped."""
_GLANCES = {200: "changes what is there", 404: "nothing is there", 410: "nothing is there any more"}
_NOT_TAKEN = (450, 451, 452, 550, 551, 552, 553, 554)
"""A server's answers to a mail's end if it has not taken it (RFC 5321 4.3.2); with 421 or 500 it may have it."""
_AGENTS = {"push": "git/2.39 (mudroom)"}


class NotSent(Exception):
    """Nothing has changed at the server. ``by_server``: it has refused the push."""

    def __init__(self, why: str, *, by_server: bool = False, status: int = 0) -> None:
        super().__init__(why)
        self.by_server, self.status = by_server, status


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
    patience: float = 60.0
    """Seconds for the server's next bytes."""
    variables: Mapping[bytes, bytes] = {}
    """The user's."""

    @property
    def anonymous(self) -> ServerAccess:
        return self._replace(authorization=None)


class EffectServer(Protocol):
    """One effect's server."""

    again: str
    """What the next apply does if the answer is lost."""

    @property
    def way_back(self) -> str:
        """What an undo does, or what is left if it can do nothing."""

    def before(self) -> HeldEffect:
        """Return the effect as it is noted before it is sent. Raise NotSent."""

    def glance(self) -> tuple[str, ...]:
        """Return flags for the review. Raise NotSent."""

    def is_there(self, *, may_be: bool) -> bool:
        """Return whether the server has the effect already; asked after a lost answer (``may_be``). Raise NotSent if it
        has something else there."""

    def send(self, body: BinaryIO) -> PushReport:
        """Send the effect, and return the server's report. Raise NotSent or LostAnswer."""

    def undo(self) -> PushReport | None:
        """Take the effect back. Return the report; None if it has been taken back already. Raise NotSent or
        LostAnswer."""


class _Server:
    again = "the next apply asks the server first"

    def __init__(self, push: HeldEffect, access: ServerAccess) -> None:
        self._push, self._access = push, access

    def before(self) -> HeldEffect:
        return self._push

    def glance(self) -> tuple[str, ...]:
        return ()

    def undo(self: EffectServer) -> PushReport | None:
        raise NotSent(self.way_back)

    def _get(self, path: str, kind: str = "*/*") -> tuple[http.client.HTTPResponse, bytes]:
        """Raise NotSent."""
        try:
            with closing(self._connect("GET", path)) as connection:
                connection.request("GET", path, headers=self._headers() | {"Accept": kind})
                answer = connection.getresponse()
                return answer, self._body(answer, _MOST_PAGE)
        except (OSError, http.client.HTTPException) as error:
            raise NotSent(_words(error)) from error

    def _send(
        self, method: str, path: str, body: BinaryIO, headers: Mapping[str, str]
    ) -> tuple[http.client.HTTPResponse, bytes]:
        """Raise NotSent or LostAnswer."""
        try:
            connection = self._connect(method, path)
        except OSError as error:
            raise NotSent(_words(error)) from error
        try:
            connection.request(method, path, body, self._headers() | dict(headers))
            answer = connection.getresponse()
            data = self._body(answer, _MOST_REPORT)
        except (OSError, http.client.HTTPException) as error:
            raise LostAnswer(_words(error)) from error
        finally:
            connection.close()
        if 300 <= answer.status < 500 and answer.status not in (302, 303):  # the latter come after it was done
            raise NotSent(self._refusal(answer, data), by_server=True, status=answer.status)
        if not 200 <= answer.status < 300:
            raise LostAnswer(f"the server answered {answer.status}")
        return answer, data

    def _report(self, answer: http.client.HTTPResponse, data: bytes) -> PushReport:
        is_page = (answer.getheader("Content-Type") or "").startswith("text/h")
        lines = [] if is_page else data.decode("utf-8", "replace").split("\n")[:20]
        return PushReport(
            tuple((label, "") for label in self._push.labels),
            tuple(line.strip()[:500] for line in lines if line.strip()),
        )

    def _headers(self) -> dict[str, str]:
        given = self._access.authorization
        return {"User-Agent": _AGENTS.get(self._push.kind, "mudroom")} | (
            {given[0]: given[1]} if given is not None else {}
        )

    def _refusal(self, answer: http.client.HTTPResponse, said: bytes = b"") -> str:
        if answer.status in (401, 403, 404) and self._access.authorization is None:
            host = self._push.host if self._push.port == 443 else f"{self._push.host}:{self._push.port}"
            return f"the server answered {answer.status}: mudroom net credential NAME {host} gives it a login"
        words = "" if self._push.kind == "push" else f"{answer.reason} {said.decode('utf-8', 'replace')}"
        return " ".join(("the server answered", str(answer.status), *words[:2000].split()))[:350]

    @staticmethod
    def _body(answer: http.client.HTTPResponse, most: int) -> bytes:
        data = answer.read(most + 1)
        if len(data) > most or (answer.length or 0) > 0:
            raise http.client.HTTPException("the answer is cut off, or too long")
        return data

    def _connect(self, method: str, path: str) -> http.client.HTTPConnection:
        """Raise OSError."""
        push, channel = self._push, self._channel(method, path)
        if push.scheme == "https":
            channel = self._wrapped(channel, ("http/1.1",))
        connection = http.client.HTTPConnection(push.host, push.port, timeout=self._access.patience)
        connection.sock = channel
        return connection

    def _wrapped(self, channel: socket.socket, protocols: tuple[str, ...]) -> socket.socket:
        """Return TLS over a connection. Raise OSError."""
        with ClosedOnError(channel):
            return client_context(self._access.roots, protocols).wrap_socket(channel, server_hostname=self._push.host)

    def _channel(self, method: str, path: str) -> socket.socket:
        """Raise OSError."""
        push = self._push
        decision = decide(Request(push.host, push.port, method, path), self._access.rules)
        if decision.action == "deny" or decision.rule is None:
            raise PermissionError(0, decision.reason)
        proxy = self._access.proxy if not decision.rule.private else None
        if proxy is not None:
            return self._tunnel(proxy)
        addresses = look_up(push.host, push.port)
        allowed = decision._replace(action="allow")
        reason = vet(allowed, addresses, LocalAddresses(addresses), rules=self._access.rules, port=push.port)
        if reason is not None:
            raise PermissionError(0, reason)
        return _first(addresses, push.port, self._access.patience)

    def _tunnel(self, proxy: Upstream) -> socket.socket:
        place = http.client.HTTPConnection(
            proxy.authority.host.text, proxy.authority.port, timeout=self._access.patience
        )
        login = b2a_base64(proxy.credentials, newline=False).decode() if proxy.credentials else ""
        headers = {"Proxy-Authorization": f"Basic {login}"} if login else {}
        place.set_tunnel(self._push.host, self._push.port, headers)
        place.connect()
        return place.sock


class SshGit:
    """``git-receive-pack`` of a push's server, by the user's own ssh."""

    def __init__(self, push: HeldEffect, access: ServerAccess) -> None:
        self._push, self._access = push, access

    def refs(self) -> bytes:
        """Return the refs, as HTTP tells them. Raise NotSent."""
        told, error = self._talk(io.BytesIO(FLUSH), self._access.patience)
        if error and not told.endswith(FLUSH):
            raise NotSent(error)
        return packet(b"# service=git-receive-pack\n") + FLUSH + told

    def answer(self, body: BinaryIO, _length: int) -> bytes:
        """Return the answer to a push. Raise NotSent or LostAnswer."""
        told, error = self._talk(body, PATIENCE)
        report = told[next((end for content, end in packets(told) if content is None), len(told)) :]
        if error and not report.endswith(FLUSH):  # after a refusal, too, its status may say that it has failed
            raise LostAnswer(error)
        return report

    def _talk(self, body: BinaryIO, patience: float) -> tuple[bytes, str]:
        """Return the server's bytes, and why ssh has failed. Raise NotSent."""
        push, variables = self._push, self._access.variables
        place = Request(push.host, push.port, "", push.path)
        try:
            line = ssh_line(variables, self._access.rules, place, push.login, "receive")
            told, said = talk(line, variables, body, patience)
        except (OSError, ValueError) as error:
            raise NotSent(_words(error)) from error
        return told, ssh_words(said, push.host, push.port, variables) if said else ""


class PushServer(_Server):
    """An ``EffectServer`` for a git push. Between ``is_there`` and ``send`` the server's compare-and-swap of the old
    ids guards."""

    def __init__(self, push: HeldEffect, access: ServerAccess) -> None:
        super().__init__(push, access)
        self._git: SshGit | PushServer = SshGit(push, access) if push.scheme == "ssh" else self

    def is_there(self, *, may_be: bool) -> bool:
        return self._is_there(self._push.commands, may_be=may_be)

    def send(self, body: BinaryIO) -> PushReport:
        return self._push_refs(
            body, self._push.size, self._push.commands, side_band="side-band-64k" in self._push.capabilities
        )

    @property
    def way_back(self) -> str:
        moved = (one for one in self._push.commands if one.ref in self._push.moved)
        done = [
            f"{one.ref} is {'removed' if one.old == NONE else 'restored' if one.new == NONE else 'moved back'}"
            for one in moved
        ]
        return f"{', '.join(done)}, unless somebody has moved it since"

    def undo(self) -> PushReport | None:
        back = tuple(
            RefCommand(one.new, one.old, one.ref) for one in self._push.commands if one.ref in self._push.moved
        )
        if self._is_there(back, may_be=True):
            return None
        body = show_push(back)
        return self._push_refs(io.BytesIO(body), len(body), back, side_band=True)

    def standing(self, before: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
        """Return flags by ref: what the server has now where that is not what the push expects. ``before``: the refs as
        earlier pushes will leave them. Raise NotSent."""
        there, told = self._there(), dict[str, tuple[str, ...]]()
        for ref, expected, new in ((one.ref, one.old, one.new) for one in self._push.commands):
            now = there.get(ref, NONE)
            if now == new:
                told[ref] = (f"{'gone' if new == NONE else 'there'} already",)
            elif before.get(ref, now) != expected:
                told[ref] = (f"moved upstream to {now[:10]}: refused" if now != NONE else "removed upstream: refused",)
        return told

    def _there(self) -> dict[str, str]:
        """Return the server's refs. Raise NotSent."""
        body = self._git.refs()
        try:
            return dict(parse_advertisement(body).refs)
        except ValueError as error:
            raise NotSent(str(error)) from error

    def _is_there(self, commands: Sequence[RefCommand], *, may_be: bool) -> bool:
        there = self._there()
        if may_be and all(there.get(command.ref, NONE) == command.new for command in commands):
            return True
        for ref, expected, now in ((one.ref, one.old, there.get(one.ref, NONE)) for one in commands):
            if now != expected:
                where = "is not there" if now == NONE else f"is at {now[:10]} there"
                told = "it was new" if expected == NONE else f"the push is from {expected[:10]}"
                raise NotSent(f"{ref} {where}, and {told}: {_AGAIN}", by_server=True)
        return False

    def refs(self) -> bytes:
        answer, body = self._get(self._push.path + "/info/refs?service=git-receive-pack")
        if answer.status != 200:
            raise NotSent(self._refusal(answer), by_server=answer.status < 500)
        return body

    def _push_refs(self, body: BinaryIO, length: int, commands: Sequence[RefCommand], *, side_band: bool) -> PushReport:
        try:
            return parse_report(self._git.answer(body, length), commands, side_band=side_band)
        except ValueError as error:
            raise LostAnswer(str(error)) from error

    def answer(self, body: BinaryIO, length: int) -> bytes:
        kind, path = "application/x-git-receive-pack-", self._push.path + "/git-receive-pack"
        headers = {"Content-Type": f"{kind}request", "Accept": f"{kind}result", "Content-Length": str(length)}
        return self._send("POST", path, body, headers)[1]


class MailServer(_Server):
    """An ``EffectServer`` for a mail, which no server can be asked about."""

    def __init__(self, push: HeldEffect, mail: Mail, access: ServerAccess) -> None:
        super().__init__(push, access)
        self._mail = mail
        self.again = f"{push.host} cannot be asked, so it is not sent again: look there, then send it in the fork again"

    def is_there(self, *, may_be: bool) -> bool:
        if may_be:
            raise NotSent(self.again)
        return False

    def before(self) -> HeldEffect:
        """Go on to behind DATA, where nothing is sent yet. Raise NotSent."""
        self._server = server = _Smtp(timeout=self._access.patience)
        try:
            self._greet(server)
        except (OSError, smtplib.SMTPException) as error:
            server.close()
            code, words = getattr(error, "smtp_code", 0), getattr(error, "smtp_error", b"")
            why = f"the server answered {code} {_said(words)}" if code else _words(error)
            raise NotSent(why, by_server=code >= 500) from error
        return self._push

    def send(self, body: BinaryIO) -> PushReport:
        try:  # from its last byte on, the server may have it
            with closing(self._server) as server:
                text = b"".join(b"." + line if line[:1] == b"." else line for line in body)
                server.send(text + (b"" if text.endswith(b"\r\n") else b"\r\n") + b".\r\n")
                code, words = server.getreply()
        except (OSError, smtplib.SMTPException) as error:
            raise LostAnswer(_words(error)) from error
        if code != 250 and code not in _NOT_TAKEN:
            raise LostAnswer(f"the server answered {code} {_said(words)}")
        if code != 250:
            raise NotSent(f"the server answered {code} {_said(words)}", by_server=True)
        return PushReport(((self._push.labels[0], ""),), (_said(words),))

    def _greet(self, server: _Smtp) -> None:
        """Raise OSError or SMTPException."""
        push, mail, given = self._push, self._mail, self._access.authorization
        channel, is_safe = self._channel("", ""), push.scheme == "smtps"
        server.open(self._wrapped(channel, ()) if is_safe else channel, push.host, push.port)
        server.ehlo_or_helo_if_needed()
        if not is_safe and server.has_extn("starttls"):
            server.starttls(context=client_context(self._access.roots, ()))
            server.ehlo_or_helo_if_needed()
        elif given is not None and not is_safe:
            raise smtplib.SMTPException("a credential is sent over TLS only, and the server has no STARTTLS")
        if given is not None:
            user, _colon, password = a2b_base64(given[1].partition(" ")[2]).decode("latin-1").partition(":")
            server.login(user, password)
        steps = [server.mail(mail.sender), *map(server.rcpt, mail.recipients)]
        wrong = next((step for step in steps if step[0] not in (250, 251)), None) or server.docmd("DATA")
        if wrong[0] != 354:
            raise smtplib.SMTPResponseException(*wrong)

    @property
    def way_back(self) -> str:
        return "a mail cannot be taken back"


class _Smtp(smtplib.SMTP):
    """smtplib's, over a connection that was made here."""

    def open(self, channel: socket.socket, host: str, port: int) -> None:
        """Raise OSError or SMTPException."""
        self._channel, self._host = channel, host  # smtplib takes the name for TLS from here
        code, words = self.connect(host, port)
        if code != 220:
            raise smtplib.SMTPResponseException(code, words)

    def _get_socket(self, _host: str, _port: int, _timeout: float) -> socket.socket:
        return self._channel


def _said(words: bytes | str) -> str:
    return show(b" ".join((words if isinstance(words, bytes) else words.encode()).split()))[:300]


class Registry(_Server):
    """An ``EffectServer`` for a publish. A published version is never replaced: its name is the key."""

    def __init__(self, push: HeldEffect, publish: Publish, access: ServerAccess) -> None:
        super().__init__(push, access)
        self._publish = publish

    def is_there(self, *, may_be: bool) -> bool:
        publish = self._publish
        if publish.act:
            return self._is_yanked() is (publish.act == "yank")
        there = self.published().get(publish.file if publish.registry == "pypi" else publish.version)
        if there is None:
            return False
        if may_be and there[0] in ("", publish.digest):
            return True
        raise NotSent(f"{publish.label} is there already, and is not replaced: publish another version", by_server=True)

    def _is_yanked(self) -> bool | None:
        """Return whether a crate's version is yanked; None: the index does not have it. Raise NotSent."""
        try:
            return bool(crate_rows(self._list())[self._publish.version].get("yanked"))
        except ValueError as error:
            raise NotSent(str(error)) from error
        except KeyError:
            return None

    def _page(self) -> str:
        publish = self._publish
        if publish.registry == "npm":
            above = publish.page.removesuffix(publish.package)
            return quote(above, safe="/@") + publish.package.replace("/", "%2f")
        return quote(publish.page) + ("/" if publish.registry == "pypi" else "")

    def published(self) -> dict[str, tuple[str, str]]:
        """Return what the registry tells of the package, as ``publish.published`` does. Raise NotSent."""
        body = self._list()
        try:
            return published(self._publish, body) if body else {}
        except ValueError as error:
            raise NotSent(str(error)) from error

    def _list(self, page: str = "") -> bytes:
        """Return the page that tells of the package, or another one beside it; empty: there is none. Raise NotSent."""
        publish, place = self._publish, self._push.page_hosts[0]
        index = self if place == self._push.host else _Server(self._push._replace(host=place), self._access.anonymous)
        kinds = {"npm": "application/json", "pypi": _SIMPLE}
        try:
            answer, body = index._get(page or self._page(), kinds.get(publish.registry, "*/*"))
        except NotSent as problem:
            raise NotSent(f"{place} cannot be asked for {publish.package}: {problem}") from problem
        sent_on = publish.registry == "pypi" and answer.status in (302, 303)  # an index may send on to another one
        gone = (404, 410, 451) if publish.registry == "crates" else (404,)
        if sent_on or answer.status in gone:
            return b""
        if answer.status != 200:
            raise NotSent(self._refusal(answer, body), by_server=answer.status < 500)
        return body

    def last(self) -> tuple[str, bytes]:
        """Return the version that was published last, and its file; for an index, its last file of this kind. Both are
        empty if there is none. Raise NotSent."""
        publish, there = self._publish, self.published()
        names = [name for name in there if publish.registry != "pypi" or name.endswith(publish.file[-4:])]
        if not names:
            return "", NO_FILES
        digest, link = there[names[-1]]
        if publish.registry == "crates":
            config = self._list(f"{quote(index_of(publish.page) or '')}/config.json")
            try:
                link = download_url(config, publish, names[-1], digest)
            except ValueError as error:
                raise NotSent(str(error)) from error
        page = self._push._replace(host=self._push.page_hosts[0], path=self._page())
        url = urlsplit(urljoin(page.remote_url, link))
        place = self._push._replace(
            scheme="https" if url.scheme == "https" else "http",
            host=url.hostname or "",
            port=url.port or (443 if url.scheme == "https" else 80),
        )
        is_same = place.repository == self._push.repository
        path = url.path + (f"?{url.query}" if url.query else "")
        answer, content = _Server(place, self._access if is_same else self._access.anonymous)._get(path)
        if answer.status != 200:
            raise NotSent(f"{names[-1]}: {self._refusal(answer)}")
        return names[-1], content

    def send(self, body: BinaryIO) -> PushReport:
        publish = self._publish
        if publish.registry == "crates":
            return self._crate(publish.act, body, self._push.size)
        method = "PUT" if publish.registry == "npm" else "POST"
        headers = {"Content-Type": publish.content_type, "Content-Length": str(self._push.size)}
        return self._report(*self._send(method, self._push.path, body, headers))

    def _crate(self, act: str, body: BinaryIO, size: int) -> PushReport:
        """Raise NotSent or LostAnswer. A registry may tell of an error with the status 200."""
        publish, headers = self._publish, {"Accept": "application/json", "Content-Length": str(size)}
        path = f"{self._push.path.partition('/api/v1/')[0]}/api/v1/crates/"
        path += f"{publish.package}/{publish.version}/{act}" if act else "new"
        answer, data = self._send("DELETE" if act == "yank" else "PUT", path, body, headers)
        if b'"errors"' in data:
            raise NotSent(self._refusal(answer, data), by_server=True)
        return PushReport(((self._push.labels[0], ""),), ())

    def undo(self) -> PushReport | None:
        publish = self._publish
        if publish.registry != "crates":
            return super().undo()
        act = "unyank" if publish.act == "yank" else "yank"
        if self._is_yanked() is (act == "yank"):
            return None
        done = self._crate(act, io.BytesIO(), 0)
        return done if publish.act else done._replace(remote=(self.way_back,))

    @property
    def way_back(self) -> str:
        publish = self._publish
        if publish.registry == "crates":
            if publish.act:
                return "it is not yanked any more" if publish.act == "yank" else "it is yanked again"
            return "it is yanked: no new lock file takes it, but it stays there, and its name is used up"
        if publish.registry == "npm":
            name = f"{publish.package}@{publish.version}"
            way = f"npm unpublish {name} within 72 hours if nothing depends on it; later npm deprecate {name} WHY"
        else:
            way = "its page at the index can yank it or delete it"
        return f"a published version cannot be taken back, and its name is used up: {way}"


class RequestServer(_Server):
    """An ``EffectServer`` for another request. It is asked for the path before and after (``request.is_done``)."""

    def __init__(self, push: HeldEffect, request: HttpRequest, access: ServerAccess, sent: bytes) -> None:
        """``sent``: the request's body."""
        super().__init__(push, access)
        self._request, self._sent = request, sent
        if request.method == "POST":
            self.again = f"the next apply sends it again with its key, which {push.host} takes once"
        elif not request.may_repeat:
            self.again = "it is not sent again: look there, then make it again in the fork, or discard it"

    def glance(self) -> tuple[str, ...]:
        if self._request.method == "POST":
            return ()
        status, _there = self._look()
        return (_GLANCES.get(status, f"a GET of it is answered with {status}"),)

    def _look(self) -> tuple[int, bytes]:
        """Return what is at the path: status and content. Raise NotSent."""
        answer, there = self._get(self._push.path)
        if answer.status >= 500:
            raise NotSent(self._refusal(answer))
        return answer.status, there

    def before(self) -> HeldEffect:
        """Return the effect with what is at its path now. Raise NotSent."""
        if self._request.method != "POST" and self._push.state not in ("sending", "unknown"):
            self._request = self._request._replace(seen=seen(*self._look()))
        return self._push._replace(request=self._request)

    def is_there(self, *, may_be: bool) -> bool:
        if not may_be or self._request.method == "POST":
            return False
        there = self._look()
        if is_done(self._request, self._sent, *there):
            return True
        if not self._request.may_repeat or seen(*there) != self._request.seen:
            raise NotSent(f"{self._push.host} does not show whether it was done; {self.again}")
        return False

    def send(self, body: BinaryIO) -> PushReport:
        request, may_be = self._request, self._push.state in ("sending", "unknown")
        length = {} if request.method == "DELETE" and not self._push.size else {"content-length": str(self._push.size)}
        try:
            return self._report(*self._send(request.method, self._push.path, body, dict(request.headers) | length))
        except NotSent as problem:
            # GitHub answers 422 to a second pull request: "A pull request already exists for ada:fix."
            if not may_be or (problem.status not in (409, 412) and "already exists" not in str(problem)):
                raise
            # a header's key: its request may be outstanding (draft-ietf-httpapi-idempotency-key-header, 2.6)
            if request.key and (problem.status != 409 or request.key.startswith(".")):
                return PushReport(((self._push.labels[0], ""),), (f"{problem}: it has this key",))
            raise LostAnswer(f"{problem}, perhaps since this request was done") from problem

    @property
    def way_back(self) -> str:
        return undo_words(self._request, self._push.path)


def server_of(push: HeldEffect, access: ServerAccess, sent: bytes = b"") -> EffectServer:
    """``sent``: the body of a request."""
    if push.request is not None:
        return RequestServer(push, push.request, access, sent)
    if push.mail is not None:
        return MailServer(push, push.mail, access)
    if push.publish is not None:
        return Registry(push, push.publish, access)
    return PushServer(push, access)


def look_up(host: str, port: int) -> list[bytes]:
    """Return a host's addresses. Raise OSError."""
    rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [socket.inet_pton(family, str(place[0])) for family, _type, _protocol, _name, place in rows]


def _first(addresses: Sequence[bytes], port: int, patience: float) -> socket.socket:
    """Return a connection to the first address that takes one."""
    problem = OSError("it has no address")
    for packed in addresses:
        try:
            return socket.create_connection((show_address(packed), port), timeout=patience)
        except OSError as error:
            problem = error
    raise problem


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__
