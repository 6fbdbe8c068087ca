"""A question to somebody who may let something happen, and the answer. Values, and what follows from them alone.

Rules of this file:
1. Only a ``CommandAnswer`` whose ``allow`` is ``True`` allows: an approver that raises or returns anything else
   refuses.
2. An answer is about a fingerprint: of the command, its place, its verdict, the terms on which it runs, and the files
   that it names (``core/approval/fingerprint.py``). It is no answer to a question with another one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mudroom.core.command.verdict import Verdict


class CommandQuestion(NamedTuple):
    command: tuple[bytes, ...]
    cwd: bytes
    fork: str
    agent: str
    """Empty: none has been named."""
    verdict: Verdict
    pattern: str
    """The rule that an answer of "always" writes, as it would stand in the file; empty: none can be written."""
    fingerprint: str
    """Of all that was looked at: an answer to anything else is no answer to this."""
    files: tuple[tuple[bytes, str], ...] = ()
    """Those that the fingerprint covers: path and digest."""
    terms: tuple[str, ...] = ()
    """On which it would run: a few words each (``terms_of``), for people; the fingerprint covers them."""


def terms_of(
    level: int,
    network: str,
    *,
    credentials: Sequence[str] = (),
    variables: Sequence[str] = (),
    shown: Sequence[str] = (),
    read: Sequence[str] = (),
    sockets: bool = False,
    graphics: bool = False,
    background: bool = False,
    image: str = "",
) -> tuple[str, ...]:
    """``level 1``, ``network: gate``, ``variables: BASH_ENV`` …; what is not asked for is left out."""
    named = {"credentials": credentials, "variables": variables, "shown": shown, "read": read}
    lists = [f"{name}: {' '.join(sorted(set(found)))}" for name, found in named.items() if found]
    asked_for = {"abstract sockets": sockets, "graphics cards": graphics, "in the background": background}
    where = (f"level {level}", f"network: {network}", *((f"image: {image}",) if image else ()))
    return (*where, *lists, *(name for name, given in asked_for.items() if given))


class CommandAnswer(NamedTuple):
    allow: bool
    keep: bool = False
    """Whether to write the rule; it may have been written already."""
    by: str = ""
    """Who answered, for the journal: ``terminal``, ``queue``, ``nobody`` …"""
    reason: str = ""


CommandApprover = Callable[[CommandQuestion], CommandAnswer]
Remember = Callable[[str, bool], None]
"""Writes the rule of a question's ``pattern``: to allow (True) or to deny. Writing what is there already does nothing.
Raises MudroomError."""


class HostQuestion(NamedTuple):
    """The gate's question, as it waits in the queue."""

    host: str
    port: int
    way: str
    fork: str
    agent: str

    @property
    def fingerprint(self) -> str:
        return f"{self.host}:{self.port}"


LONGEST_RULE = 300
"""Characters: a rule that nobody reads to its end is not written by one key."""


def can_be_kept(question: CommandQuestion | HostQuestion) -> bool:
    """Whether "always" is offered: there is a rule, and it can be read whole before it is written."""
    if isinstance(question, HostQuestion):
        return True
    return 0 < len(question.pattern) <= LONGEST_RULE and question.pattern.isprintable()


def rule_of(question: CommandQuestion | HostQuestion, allow: bool) -> str:
    """What an answer of "always" writes, in a line; of a command without a pattern it says nothing."""
    what = question.pattern if isinstance(question, CommandQuestion) else question.fingerprint
    return f"{'allow' if allow else 'deny'} {what}"


def asked(approver: CommandApprover | None, question: CommandQuestion) -> CommandAnswer:
    """What the approver says. Whatever is wrong with it refuses, and the reason names it; only what is no ``Exception``
    (Ctrl-C) passes through."""
    if approver is None:
        return CommandAnswer(False, by="nobody", reason="it needs an approval, and nobody is there to be asked")
    try:
        answer: Any = approver(question)
    except Exception as error:  # noqa: BLE001 - it is anybody's code, and must not let the command through
        said = f": {error}" if str(error) else ""
        return CommandAnswer(False, by="nobody", reason=f"the approver failed: {type(error).__name__}{said}")
    if not isinstance(answer, CommandAnswer) or type(answer.allow) is not bool or type(answer.keep) is not bool:
        found = type(answer).__name__ if not isinstance(answer, CommandAnswer) else f"allow={answer.allow!r}"
        reason = f"the approver returned {found}, where a CommandAnswer with True or False is needed"
        return CommandAnswer(False, by="nobody", reason=reason[:500])
    return answer


def is_same(one: CommandQuestion | HostQuestion, other: CommandQuestion | HostQuestion) -> bool:
    """Whether an answer to the one answers the other."""
    mine, yours = (one.fingerprint, one.fork, one.agent), (other.fingerprint, other.fork, other.agent)
    return type(one) is type(other) and bool(one.fingerprint) and mine == yours


def difference(before: CommandQuestion, now: CommandQuestion) -> str:
    """Why an answer to the one is none to the other, though both are about the same command; empty if they are not."""
    if (before.command, before.fork, before.agent) != (now.command, now.fork, now.agent):
        return ""
    if before.cwd != now.cwd:
        return ""
    if before.verdict[:3] != now.verdict[:3]:
        return f"what is said about it has changed ({before.verdict.rule} → {now.verdict.rule})"
    if before.terms != now.terms:
        gone = [term for term in before.terms if term not in now.terms]
        come = [term for term in now.terms if term not in before.terms]
        return f"it would run on other terms ({', '.join(gone) or '-'} → {', '.join(come) or '-'})"
    old, new = dict(before.files), dict(now.files)
    changed = [path for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path)]
    if not changed:
        return "a variable that decides what is run has changed"
    from mudroom.core.tree.path import show

    others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    return f"{show(changed[0])}{others} changed"
