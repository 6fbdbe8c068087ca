"""A fork's held effects in a session: shown in its review, sent with its apply, taken back with the apply's undo.

Rules of this file:
1. An effect is sent at most once by one apply, in the order in which they were held. ``sending`` is durable before
   the first byte, and what has come of it before the next.
2. The server is asked for the protocol's key (the refs, the version) before anything is sent. A ref that is not where
   the push expects it, or a version that is there, is a refusal with its words.
3. If the answer is lost, the server is asked again: the effect is sent, or it is ``unknown``, and no apply repeats it
   before it has asked. A server that refuses the repetition may do so because of the first one, which it may still be
   doing: it is asked again, and the effect stays ``unknown`` until the server shows it.
4. The user's credential is read when it is needed, and is in no message.
"""

from __future__ import annotations

import os
from binascii import b2a_base64
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from mudroom.core.network.host_pattern import LOCALHOST, LOCALHOST_ADDRESSES
from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.push import DONE, PushedRef, PushRow, PushState, Verb
from mudroom.core.text.plural import counted
from mudroom.core.text.redaction import redact
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.ext.effects.mail import mail_lines
from mudroom.ext.effects.origin import foreign_files
from mudroom.ext.effects.pack import PackView, view_pack
from mudroom.ext.effects.publish import package_files
from mudroom.ext.effects.store import HeldEffect, effects, open_request, package, remove, save, save_sent, sent
from mudroom.ext.effects.upstream import (
    EffectServer,
    LostAnswer,
    NotSent,
    PushServer,
    Registry,
    ServerAccess,
    server_of,
)
from mudroom.ext.effects.wire import NONE, PushReport, RefCommand
from mudroom.ext.inspection.credentials import load_credentials, read_credentials
from mudroom.ext.inspection.roots import own_roots
from mudroom.net.protocol.upstream import parse_upstream
from mudroom.session.confinement.command_gate import upstream_of
from mudroom.session.forks import Forks
from mudroom.typing import NamedTuple
from mudroom.vault.store.fork import Fork

_PROTECTED = ("refs/heads/main", "refs/heads/master")
_GLANCE = 10.0
"""Seconds for a registry's next bytes while a review is shown."""
_TOO_LARGE = "too large to be looked into whole"
_LINES, _WIDTH = 40, 300
"""Lines of a body that a review shows, and bytes of each."""
_SEARCHED = 1 << 20
"""Bytes of an object in which a secret is looked for."""


class HostSide(NamedTuple):
    """What an effect is sent with."""

    variables: Mapping[bytes, bytes]
    home: bytes
    rules: Callable[[], Sequence[HostRule]]


class EffectOutbox:
    def __init__(self, forks: Forks, host: HostSide) -> None:
        self._forks, self._host = forks, host

    # --- the review ---

    def rows(self, place: bytes) -> list[PushRow]:
        """Return the effects in a fork, oldest first. ``place``: the fork's directory."""
        rows, waiting = [], dict[object, tuple[str, ...]]()
        for push in effects(place):
            before = waiting.get(push.repository, ())
            rows.append(self._row(place, push)._replace(needs=before))
            waiting[push.repository] = (*before, push.name) if push.state == "held" else before
        return rows

    def _row(self, place: bytes, push: HeldEffect) -> PushRow:
        flags: list[str] = []
        if push.request is not None:
            body = self._body(place, push)
            lines = [*(f"{name}: {value}" for name, value in push.request.headers), *_lines(body)]
            flags = [f"{push.size:,} bytes", *(["may have a secret"] if self._is_secret(body) else [])]
            flags += [_TOO_LARGE] if push.size > _SEARCHED else []
            return _flagged(_outcome(push)._replace(files=tuple(("", line) for line in lines)), *flags)
        if push.mail is not None:
            headers, text = mail_lines(body := self._body(place, push))
            flags = [f"{push.size:,} bytes", *(["may have a secret"] if self._is_secret(body) else [])]
            shown = [f"envelope: {push.mail.sender or '<>'} to {', '.join(push.mail.recipients)}"]
            shown += [*(f"{name}: {value}" for name, value in headers), *text]
            return _flagged(_outcome(push)._replace(files=tuple(("", line) for line in shown)), *flags)
        if push.publish is not None:
            flags += [f"tag {tag}" for tag in push.publish.tags if tag != "latest"]
            try:
                files, has_secret = package_files(package(place, push).content, self._is_secret)
            except ValueError as error:
                files, has_secret = {}, False
                flags.append(str(error))
            flags += ["may have a secret"] if has_secret else []
            row = _outcome(push)
            return row._replace(
                refs=(row.refs[0]._replace(flags=tuple(flags)),), files=tuple(("", name) for name in sorted(files))
            )
        try:
            with os.fdopen(open_request(place, push), "rb") as request:
                view = view_pack(request.fileno(), push.pack, push.size, self._is_secret) if _has_pack(push) else _EMPTY
        except ValueError as error:
            view, flags = _EMPTY, [str(error)]
        flags += ["may have a secret"] if view.has_secret else []
        flags += [] if view.is_whole else [_TOO_LARGE]
        refs = tuple(_ref(command, view, flags) for command in push.commands)
        return _outcome(push)._replace(refs=refs)

    def compared(self, fork: Fork, rows: list[PushRow]) -> list[PushRow]:
        """Return the rows compared with what their servers have now: a push's refs, a publish's files with the last
        version, a request's path. A publish's files are compared with the fork's, too. A server that cannot be asked is
        asked once. Over ssh none is asked, as the user's key may want a touch."""
        held, refs, silent = (
            {push.name: push for push in effects(fork.path)},
            dict[object, dict[str, str]](),
            dict[object, str](),
        )
        compared = []
        for row in rows:
            push = held.get(row.name)
            if push is None or push.digest != row.digest:
                continue  # sent or dropped meanwhile
            if push.publish is not None and not push.publish.act:
                row = self._with_origins(fork, push, row)
            try:
                if _host(push) in silent:
                    raise NotSent(silent[_host(push)])
                if push.scheme in ("http", "https"):
                    row = self._compared(fork.path, push, row, refs.get(push.repository, {}))
            except (NotSent, ValueError) as problem:
                row = _flagged(row, f"not compared: {problem}")
                if isinstance(problem, NotSent) and not problem.by_server:
                    silent[_host(push)] = str(problem)
            if push.state == "held":
                refs.setdefault(push.repository, {}).update({one.ref: one.new for one in push.commands})
            compared.append(row)
        return compared

    def _compared(self, place: bytes, push: HeldEffect, row: PushRow, before: Mapping[str, str]) -> PushRow:
        """``before``: the refs of the repository as the effects that are sent before this one leave them. Raise NotSent
        or ValueError."""
        access = self._access(push)._replace(patience=_GLANCE)
        if push.kind == "push":
            told = PushServer(push, access).standing(before)
            return row._replace(
                refs=tuple(ref._replace(flags=(*told.get(ref.ref, ()), *ref.flags)) for ref in row.refs)
            )
        if push.publish is not None and push.publish.act:
            return row
        if push.publish is None:
            return _flagged(row, *server_of(push, access).glance())
        last, content = Registry(push, push.publish, access).last()
        there = package_files(content, lambda _data: False)[0]
        here = package_files(package(place, push).content, lambda _data: False)[0]
        signs = {name: "+" if name not in there else "" if there[name] == here[name] else "~" for name in here}
        files = [(signs.get(name, "") + sign, name) for sign, name in row.files]
        files += [("-", name) for name in sorted(there.keys() - here.keys())]
        return _flagged(
            row._replace(files=tuple(files)), f"compared with {last}" if last else "first publish of this name"
        )

    def _with_origins(self, fork: Fork, push: HeldEffect, row: PushRow) -> PushRow:
        """Return a publish's row with the files first whose content no file of the fork has."""
        try:
            here = package_files(package(fork.path, push).content, lambda _data: False)[0]
            is_python = push.publish is not None and push.publish.registry == "pypi"
            strange = foreign_files(here, self._forks.files(fork.name), is_python=is_python)
        except (ValueError, MudroomError, OSError) as problem:
            return _flagged(row, f"not compared with the fork: {problem}")
        files = [*(("!", name) for name in sorted(strange)), *(("", name) for name in sorted(here.keys() - strange))]
        told = [f"{counted(len(strange), 'file')} not from the fork"] if strange else []
        return _flagged(row._replace(files=tuple(files)), *told)

    def _body(self, place: bytes, push: HeldEffect) -> bytes:
        with os.fdopen(open_request(place, push), "rb") as request:
            return request.read()

    def _is_secret(self, data: bytes) -> bool:
        text = data[:_SEARCHED].decode("utf-8", "replace")
        return redact(text, self._forks.vault.secrets()) != text

    # --- sending ---

    def release(self, fork: Fork, place: bytes, names: Collection[str]) -> tuple[PushRow, ...]:
        """Send these effects of a fork. ``place``: the directory of the apply that sends them."""
        outcomes, waiting = [], set()
        for push in effects(fork.path):
            if push.name not in names:
                if push.state == "held":
                    waiting.add(push.repository)
                continue
            if push.repository in waiting or _host(push) in waiting:
                what = "host" if push.repository not in waiting else "path" if push.kind == "request" else "repository"
                outcome = push._replace(why=f"an effect before it to this {what} was not sent")
            else:
                outcome = self._release(fork, place, push._replace(apply=os.fsdecode(os.path.basename(place))))
                if outcome.state != "sent":
                    waiting |= {push.repository, *([_host(push)] if push.request is not None else [])}
                self._forks.journal("effect", fork.name, outcome.event())
            outcomes.append(_outcome(outcome))
        return tuple(outcomes)

    def _release(self, fork: Fork, place: bytes, push: HeldEffect) -> HeldEffect:
        server, is_again = None, False
        may_be_there = push.state in ("sending", "unknown")
        try:
            server = server_of(
                push, self._access(push), self._body(fork.path, push) if push.request is not None else b""
            )
            if server.is_there(may_be=may_be_there):
                return self._sent(fork, place, push)
            noted = server.before()
            with os.fdopen(open_request(fork.path, push), "rb") as body:
                push = noted._replace(state="sending", why="")
                save(fork.path, push)
                is_again = may_be_there
                report = server.send(body)
            if is_again and (problems := _problems(report)) and len(problems) == len(report.problems):
                raise NotSent("; ".join(problems))
        except NotSent as problem:
            if is_again:  # by its own first sending, perhaps, which the server may still be doing
                return self._lost(fork, place, push, server, str(problem))
            state: PushState = "refused" if problem.by_server else "held"
            why = f"{problem}; the next apply tries again, made again in the fork it is replaced" * bool(problem.status)
            push = push._replace(state="unknown" if may_be_there else state, why=why or str(problem))
            save(fork.path, push)
            return push
        except LostAnswer as problem:
            return self._lost(fork, place, push, server, f"the answer was lost ({problem})")
        return self._sent(fork, place, push, report)

    def _lost(self, fork: Fork, place: bytes, push: HeldEffect, server: EffectServer | None, why: str) -> HeldEffect:
        try:
            is_there = server is not None and server.is_there(may_be=True)
        except NotSent:
            is_there = False
        if is_there:
            return self._sent(fork, place, push._replace(why=f"{why}; it is there"))
        push = push._replace(state="unknown", why=f"{why}; {'' if server is None else server.again}")
        save(fork.path, push)
        return push

    def _sent(self, fork: Fork, place: bytes, push: HeldEffect, report: PushReport | None = None) -> HeldEffect:
        """``report``: the server's; None if it has shown that it has the effect."""
        report = report or PushReport(tuple((label, "") for label in push.labels), ())
        moved = tuple(ref for ref, problem in report.problems if not problem)
        why = "; ".join(filter(None, (push.why, *_problems(report))))
        push = push._replace(moved=moved, remote=report.remote, why=why)
        if not moved:
            push = push._replace(state="refused")
            save(fork.path, push)
            return push
        push = push._replace(state="sent")
        save_sent(place, push)
        remove(fork.path, push)
        return push

    # --- taking back ---

    def undo(self, place: bytes) -> tuple[PushRow, ...]:
        """Take back what an apply has sent, the last first, as far as the server has it as it was left.
        ``place``: the apply's directory."""
        outcomes = []
        for push in reversed(sent(place)):
            if push.state == "sent":
                push = self._undo(push)
                save_sent(place, push)
                self._forks.journal("effect", "", push.event())
            outcomes.append(_outcome(push))
        return tuple(outcomes)

    def ways_back(self, place: bytes) -> tuple[PushRow, ...]:
        """Return what an apply has sent, the last first, with what its undo can do about each as ``why``. No server is
        asked."""
        access = ServerAccess((), "", None, None)
        waiting = [push for push in reversed(sent(place)) if push.state == "sent"]
        return tuple(_outcome(push)._replace(why=server_of(push, access).way_back, said=()) for push in waiting)

    def _undo(self, push: HeldEffect) -> HeldEffect:
        try:
            report = server_of(push, self._access(push)).undo()
        except (NotSent, LostAnswer) as problem:
            return push._replace(why=f"not taken back: {problem}")
        if report is None:
            return push._replace(state="undone", why="")
        left = tuple(ref for ref, problem in report.problems if problem)
        if left:
            why = f"not taken back: {'; '.join(_problems(report))}"
            return push._replace(moved=left, remote=report.remote, why=why)
        return push._replace(state="undone", remote=report.remote, why="")

    def taken_back(self, place: bytes) -> tuple[PushRow, ...]:
        """Return what an apply has sent, for a redo, which sends nothing."""
        again = {"push": "git push", "publish": "publishing another version"}
        return tuple(
            _outcome(push)._replace(
                why=f"a redo sends nothing: {again.get(push.kind, f'the {push.kind}')} in a fork is held again"
            )
            for push in sent(place)
        )

    # --- dropping ---

    def drop(self, fork: Fork, since: int, only: Collection[str] | None) -> list[str]:
        """Drop the effects held since a time, or those of them that ``only`` names. Return a line about each."""
        lines = []
        try:
            waiting = effects(fork.path)
        except MudroomError as error:
            return [error.message if since else f"its held effects are dropped: {error.message}"]
        for push in waiting:
            if push.time >= since and (only is None or push.name in only):
                names = ", ".join(push.labels)
                was = "may have been" if push.state in ("sending", "unknown") else "was not"
                lines.append(f"{push.name} is dropped: {names} to {push.remote_url} {was} {DONE[push.kind]}")
                remove(fork.path, push)
                self._forks.journal("effect", fork.name, push._replace(why="dropped").event())
        return lines

    # --- internals ---

    def _access(self, push: HeldEffect) -> ServerAccess:
        """Raise NotSent if the credential that the push was made with cannot be had."""
        proxy = upstream_of(self._host.variables)
        try:
            rules, roots = self._host.rules(), own_roots(self._host.variables)
            login = self._login(push)
        except MudroomError as error:
            raise NotSent(f"{error.message}; {error.hint}" if error.hint else error.message) from error
        upstream = parse_upstream(proxy) if proxy else None
        return ServerAccess(rules, roots, upstream, login, variables=self._host.variables)

    def _login(self, push: HeldEffect) -> tuple[str, str] | None:
        if not push.credential:
            return None
        if push.scheme not in ("https", "smtp", "smtps"):
            raise NotSent("a credential is sent over TLS only")
        vault = self._forks.vault
        for rule in load_credentials(vault.path):
            hosts = LOCALHOST_ADDRESSES if push.host == LOCALHOST else (push.host,)
            if (rule.name, rule.port) == (push.credential, push.port) and rule.host in hosts:
                value = read_credentials((rule,), self._host.variables, self._host.home)[0].value
                vault.journal.conceal((value,))
                scheme, _space, rest = push.login.partition(" ")
                if scheme == "basic":
                    pair = rest.replace("{}", value).encode("latin-1")
                    return rule.header, "Basic " + b2a_base64(pair, newline=False).decode()
                return rule.header, push.login.replace("{}", value)
        raise NotSent(
            f"the credential {push.credential} is not for {push.host} any more: mudroom net credential sets it"
        )


_EMPTY = PackView({}, {}, False, True)


def _problems(report: PushReport) -> list[str]:
    return [f"{ref}: {problem}" for ref, problem in report.problems if problem]


def _has_pack(push: HeldEffect) -> bool:
    return push.size > push.pack


def _host(push: HeldEffect) -> tuple[str, str, int, str]:
    return push.scheme, push.host, push.port, ""


def _lines(body: bytes) -> list[str]:
    """Return a body's first lines to show."""
    if b"\0" in body[:_SEARCHED]:
        return ["(not text)"]
    return [show(line[:_WIDTH]) for line in body[:_SEARCHED].split(b"\n")[:_LINES] if line]


def _flagged(row: PushRow, *flags: str) -> PushRow:
    return row._replace(refs=tuple(ref._replace(flags=(*ref.flags, *flags)) for ref in row.refs))


def _outcome(push: HeldEffect) -> PushRow:
    refs = [PushedRef(one.ref, one.old, one.new, _verb(one)) for one in push.commands]
    if push.kind != "push":
        refs = [PushedRef(push.labels[0], "", push.digest if push.publish is None else push.publish.digest, "new")]
    said = tuple(show(line.encode()) for line in push.remote)
    return PushRow(push.name, push.remote_url, push.state, tuple(refs), push.why, said, push.kind, digest=push.digest)


def _verb(command: RefCommand) -> Verb:
    return "new" if command.old == NONE else "deleted" if command.new == NONE else "moved"


def _ref(command: RefCommand, view: PackView, flags: Sequence[str]) -> PushedRef:
    names = list(_walk(command, view))
    commits = tuple((name, view.commits[name].subject) for name in names)
    reached = {parent for name in names for parent in view.commits[name].parents}
    verb = _verb(command)
    own = ["force, as far as its pack shows"] if verb == "moved" and command.old not in reached else []
    own += ["protected name"] if command.ref in _PROTECTED else []
    return PushedRef(command.ref, command.old, command.new, verb, commits, None, (*own, *flags))


def _walk(command: RefCommand, view: PackView) -> Iterator[str]:
    """Yield the commits of the pack that a ref brings, newest first."""
    pending, seen = [view.tags.get(command.new, command.new)], {command.old}
    while pending:
        name = pending.pop(0)
        if name in seen or name not in view.commits:
            continue
        seen.add(name)
        yield name
        pending += view.commits[name].parents
