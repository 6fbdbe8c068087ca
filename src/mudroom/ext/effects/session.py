"""A fork's held pushes in a session: shown in its review, sent with its apply, taken back with the apply's undo.

Rules of this file:
1. A push is sent at most once by one apply, in the order in which the pushes were held. ``sending`` is durable before
   the first byte, and what has come of it before the next push.
2. The server's refs are asked before a push is sent. A ref that is not where the push expects it is a refusal with its
   words; between the question and the push the server's own compare-and-swap of the old ids guards.
3. If the answer is lost, the refs are asked again: the push is sent, or it is ``unknown``, and no apply repeats it
   before it has asked.
4. The user's credential is read when it is needed, and is in no message.
"""

from __future__ import annotations

import io
import os
from binascii import b2a_base64
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.push import PushedRef, PushRow, PushState, Verb
from mudroom.core.text.redaction import redact
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.ext.effects.pack import PackView, view_pack
from mudroom.ext.effects.store import HeldPush, open_request, pushes, remove, save, save_sent, sent
from mudroom.ext.effects.upstream import LostAnswer, NotSent, PushServer, ServerAccess
from mudroom.ext.effects.wire import NONE, PushReport, RefCommand, show_push
from mudroom.ext.inspection.credentials import load_credentials, read_credentials
from mudroom.ext.inspection.roots import own_roots
from mudroom.net.protocol.upstream import parse_upstream
from mudroom.session.confinement.command_gate import upstream_of
from mudroom.session.forks import Forks
from mudroom.typing import NamedTuple
from mudroom.vault.store.fork import Fork

_PROTECTED = ("refs/heads/main", "refs/heads/master")
_AGAIN = "in the fork: git fetch, git rebase --no-fork-point on it, git push; then apply it again"
"""Without the option git takes the held commits, which the remote branch had, for ones that upstream has dropped."""
_SEARCHED = 1 << 20
"""Bytes of an object in which a secret is looked for."""


class HostSide(NamedTuple):
    """What a push is sent with."""

    variables: Mapping[bytes, bytes]
    home: bytes
    rules: Callable[[], Sequence[HostRule]]


class PushOutbox:
    def __init__(self, forks: Forks, host: HostSide) -> None:
        self._forks, self._host = forks, host

    # --- the review ---

    def rows(self, place: bytes) -> list[PushRow]:
        """Return the pushes in a fork, oldest first. ``place``: the fork's directory."""
        return [self._row(place, push) for push in pushes(place)]

    def _row(self, place: bytes, push: HeldPush) -> PushRow:
        flags: list[str] = []
        try:
            with os.fdopen(open_request(place, push), "rb") as request:
                view = view_pack(request.fileno(), push.pack, push.size, self._is_secret) if _has_pack(push) else _EMPTY
        except ValueError as error:
            view, flags = _EMPTY, [str(error)]
        flags += ["may have a secret"] if view.has_secret else []
        flags += [] if view.is_whole else ["too large to be looked into whole"]
        refs = tuple(_ref(command, view, flags) for command in push.commands)
        return _outcome(push)._replace(refs=refs)

    def _is_secret(self, data: bytes) -> bool:
        text = data[:_SEARCHED].decode("utf-8", "replace")
        return redact(text, self._forks.vault.secrets()) != text

    # --- sending ---

    def release(self, fork: Fork, place: bytes, names: Collection[str]) -> tuple[PushRow, ...]:
        """Send these pushes of a fork. ``place``: the directory of the apply that sends them."""
        outcomes, waiting = [], set()
        for push in pushes(fork.path):
            if push.name not in names:
                if push.state == "held":
                    waiting.add(push.repository)
                continue
            if push.repository in waiting:
                outcome = push._replace(why="a push before it to this repository was not sent")
            else:
                outcome = self._release(fork, place, push._replace(apply=os.fsdecode(os.path.basename(place))))
                if outcome.state != "sent":
                    waiting.add(push.repository)
                self._forks.journal("effect", fork.name, outcome.event())
            outcomes.append(_outcome(outcome))
        return tuple(outcomes)

    def _release(self, fork: Fork, place: bytes, push: HeldPush) -> HeldPush:
        server, is_asked = None, False
        may_be_there = push.state in ("sending", "unknown")
        try:
            server = PushServer(push, self._access(push))
            there = server.refs()
            if may_be_there and _is_there(push.commands, there):
                return self._sent(
                    fork, place, push, PushReport(tuple((command.ref, "") for command in push.commands), ())
                )
            if moved := _moved(push.commands, there):
                raise NotSent(moved, by_server=True)
            is_asked = True
            with os.fdopen(open_request(fork.path, push), "rb") as body:
                push = push._replace(state="sending", why="")
                save(fork.path, push)
                side_band = "side-band-64k" in push.capabilities
                report = server.send(body, push.size, push.commands, side_band=side_band)
        except NotSent as problem:
            state: PushState = "refused" if problem.by_server else "held"
            push = push._replace(state="unknown" if may_be_there and not is_asked else state, why=str(problem))
            save(fork.path, push)
            return push
        except LostAnswer as problem:
            return self._lost(fork, place, push, server, str(problem))
        return self._sent(fork, place, push, report)

    def _lost(self, fork: Fork, place: bytes, push: HeldPush, server: PushServer | None, why: str) -> HeldPush:
        try:
            there = server.refs() if server is not None else {}
        except NotSent:
            there = {}
        if there and _is_there(push.commands, there):
            report = PushReport(tuple((command.ref, "") for command in push.commands), ())
            return self._sent(
                fork, place, push._replace(why=f"the answer was lost ({why}); its refs are there"), report
            )
        push = push._replace(state="unknown", why=f"the answer was lost ({why}); the next apply asks the server first")
        save(fork.path, push)
        return push

    def _sent(self, fork: Fork, place: bytes, push: HeldPush, report: PushReport) -> HeldPush:
        moved = tuple(ref for ref, problem in report.problems if not problem)
        problems = "; ".join(f"{ref}: {problem}" for ref, problem in report.problems if problem)
        push = push._replace(moved=moved, remote=report.remote, why="; ".join(filter(None, (push.why, problems))))
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
        """Take back the pushes that an apply has sent, the last first, as far as their refs are where they were left.
        ``place``: the apply's directory."""
        outcomes = []
        for push in reversed(sent(place)):
            if push.state == "sent":
                push = self._undo(push)
                save_sent(place, push)
                self._forks.journal("effect", "", push.event())
            outcomes.append(_outcome(push))
        return tuple(outcomes)

    def _undo(self, push: HeldPush) -> HeldPush:
        back = tuple(RefCommand(one.new, one.old, one.ref) for one in push.commands if one.ref in push.moved)
        try:
            server = PushServer(push, self._access(push))
            there = server.refs()
            if _is_there(back, there):
                return push._replace(state="undone", why="")
            if moved := _moved(back, there):
                raise NotSent(moved, by_server=True)
            body = show_push(back)
            report = server.send(io.BytesIO(body), len(body), back, side_band=True)
        except (NotSent, LostAnswer) as problem:
            return push._replace(why=f"not taken back: {problem}")
        problems = "; ".join(f"{ref}: {problem}" for ref, problem in report.problems if problem)
        left = tuple(ref for ref, problem in report.problems if problem)
        if left:
            return push._replace(moved=left, remote=report.remote, why=f"not taken back: {problems}")
        return push._replace(state="undone", remote=report.remote, why="")

    def taken_back(self, place: bytes) -> tuple[PushRow, ...]:
        """Return the pushes that an apply has sent, for a redo, which sends none."""
        why = "a redo sends no push: git push in a fork holds it again"
        return tuple(_outcome(push)._replace(why=why) for push in sent(place))

    # --- dropping ---

    def drop(self, fork: Fork, since: int = 0) -> list[str]:
        """Drop the pushes that were held since a time. Return a line about each."""
        lines = []
        try:
            waiting = pushes(fork.path)
        except MudroomError as error:
            return [error.message if since else f"its held pushes are dropped: {error.message}"]
        for push in waiting:
            if push.time >= since:
                refs = ", ".join(command.ref for command in push.commands)
                lines.append(f"{push.name} is dropped: {refs} to {push.remote_url} was not pushed")
                remove(fork.path, push)
                self._forks.journal("effect", fork.name, push._replace(why="dropped").event())
        return lines

    # --- internals ---

    def _access(self, push: HeldPush) -> ServerAccess:
        """Raise NotSent if the credential that the push was made with cannot be had."""
        proxy = upstream_of(self._host.variables)
        try:
            rules, roots = self._host.rules(), own_roots(self._host.variables)
            login = self._login(push)
        except MudroomError as error:
            raise NotSent(f"{error.message}; {error.hint}" if error.hint else error.message) from error
        return ServerAccess(rules, roots, parse_upstream(proxy) if proxy else None, login)

    def _login(self, push: HeldPush) -> tuple[str, str] | None:
        if not push.credential:
            return None
        if push.scheme != "https":
            raise NotSent("a credential is sent over TLS only")
        vault = self._forks.vault
        for rule in load_credentials(vault.path):
            if (rule.name, rule.host, rule.port) == (push.credential, push.host, push.port):
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


def _has_pack(push: HeldPush) -> bool:
    return push.size > push.pack


def _is_there(commands: Sequence[RefCommand], there: Mapping[str, str]) -> bool:
    return all(there.get(command.ref, NONE) == command.new for command in commands)


def _moved(commands: Sequence[RefCommand], there: Mapping[str, str]) -> str:
    """Return why these refs cannot be moved from where they are, or ""."""
    for ref, expected, now in ((one.ref, one.old, there.get(one.ref, NONE)) for one in commands):
        if now != expected:
            where = "is not there" if now == NONE else f"is at {now[:10]} there"
            told = "it was new" if expected == NONE else f"the push is from {expected[:10]}"
            return f"{ref} {where}, and {told}: {_AGAIN}"
    return ""


def _outcome(push: HeldPush) -> PushRow:
    refs = tuple(PushedRef(one.ref, one.old, one.new, _verb(one)) for one in push.commands)
    return PushRow(
        push.name,
        push.remote_url,
        push.state,
        refs,
        push.why,
        tuple(show(line.encode()) for line in push.remote),
        push.digest,
    )


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
