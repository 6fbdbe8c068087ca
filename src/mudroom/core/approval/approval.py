"""The question whether a command or a connection may proceed, and its answer: values, and functions on these values
alone.

Rules of this file:

1. Only a ``CommandAnswer`` whose ``allow`` is ``True`` allows: an approver that raises or returns anything else
   refuses.
2. An answer belongs to a fingerprint, which covers the command, its directory, its verdict, the terms on which it runs,
   and the files that it names (``core/approval/fingerprint.py``). It does not answer a question with another
   fingerprint.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mudroom.core.command.verdict import Verdict
from mudroom.core.tree.path import show
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mudroom.core.network.preset import Offer


class CommandQuestion(NamedTuple):
    command: tuple[bytes, ...]
    cwd: bytes
    fork: str
    agent: str
    """Empty: no agent is named."""
    verdict: Verdict
    pattern: str
    """The rule that the answer "always" writes, as in the file, bound to this question (``pattern_text.bind``); empty:
    no rule can be written."""
    fingerprint: str
    """Covers everything that was examined. An answer to another fingerprint does not count."""
    files: tuple[tuple[bytes, str], ...] = ()
    """Path and digest of each file that the fingerprint covers."""
    terms: tuple[str, ...] = ()
    """The terms on which the command would run, a few words each (``terms_of``). For people; the fingerprint covers
    them."""

    def rule(self, allow: bool) -> str:
        """Return the rule that the answer "always" or "never" writes, as in the file. "Never" is about the words
        alone."""
        from mudroom.core.command.pattern_text import split_bound

        return self.pattern if allow else split_bound(self.pattern)[0]


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
    engine: bool = False,
) -> tuple[str, ...]:
    """Return the terms as texts: ``level 1``, ``network: gate``, ``variables: BASH_ENV`` …. Terms that are not
    requested are left out."""
    values_by_name = {"credentials": credentials, "variables": variables, "shown": shown, "read": read}
    lists = [f"{name}: {' '.join(sorted(set(values)))}" for name, values in values_by_name.items() if values]
    flags = {"abstract sockets": sockets, "graphics cards": graphics, "in the background": background}
    flags["an engine of containers"] = engine
    place = (f"level {level}", f"network: {network}", *((f"image: {image}",) if image else ()))
    return (*place, *lists, *(name for name, is_set in flags.items() if is_set))


class CommandAnswer(NamedTuple):
    allow: bool
    keep: bool = False
    """Whether to write the rule. It may have been written already."""
    by: str = ""
    """Where the answer comes from, for the journal: ``terminal``, ``queue``, ``nobody`` …"""
    reason: str = ""
    rule: str = ""
    """As in ``FlowAnswer``; only about a host."""
    hour: bool = False
    """As in ``QueueDecision``; only where the question is in the queue."""


CommandApprover = Callable[[CommandQuestion], CommandAnswer]
Remember = Callable[[str, bool], None]
"""Write the rule of a question (``CommandQuestion.rule``): allow (True) or deny. An existing rule is not written again.
Raise MudroomError."""


class HostQuestion(NamedTuple):
    """A gate's question in the queue."""

    host: str
    port: int
    way: str
    fork: str
    agent: str
    hold: str = ""
    """As in ``FlowQuestion``."""

    @property
    def fingerprint(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def is_far(self) -> bool:
        """Return whether a worker asks (``ext/fleet/origin/question.py``). "Always" then holds for the worker's run and
        writes no rule, since the question is a claim. Local fork names contain no space."""
        return " " in self.fork


LONGEST_RULE = 300
"""Characters. A longer rule is not written on a single key press, since people do not read it to its end."""


def can_be_kept(question: CommandQuestion | HostQuestion) -> bool:
    """Return whether "always" is offered: a rule exists, and is short enough to be read before it is written."""
    if isinstance(question, HostQuestion):
        return True
    return 0 < len(question.rule(False)) <= LONGEST_RULE and question.pattern.isprintable()


def offers_of(question: CommandQuestion | HostQuestion) -> list[Offer]:
    """Return the rules that a host question offers; none for any other question."""
    if not isinstance(question, HostQuestion):
        return []
    from mudroom.core.network.preset import offers

    return offers(question.host, question.port, question.hold)


def rule_of(question: CommandQuestion | HostQuestion, allow: bool) -> str:
    """Return what the answer "always" or "never" does, in one line: the rule and where it holds. Only the action for a
    question without a pattern. All places that ask show this text."""
    from mudroom.core.command.pattern_text import split_bound

    action = "allow" if allow else "deny"
    if isinstance(question, HostQuestion):
        return f"{action} {question.fingerprint}"
    words, bound = split_bound(question.rule(allow))
    place = f"in {show(question.cwd)}, while its files and terms are as now" if bound else "in any directory"
    return f"{action} {words}, {place}" if words else action


def hour_of(question: CommandQuestion | HostQuestion) -> str:
    """Return what the answer "for an hour" does, in one line. Empty if it is not offered: without an agent, or a name,
    the fork does not outlive the command."""
    if not (question.agent and question.fork):
        return ""
    place = f"the fork {show(question.fork.encode('utf-8', 'surrogateescape'))}"
    if isinstance(question, HostQuestion):
        return f"allow {question.fingerprint} in {place}, for an hour"
    same = "while its files and terms are as now" if question.files else "while its terms are as now"
    return f"allow the same command in {place}, {same}, for an hour"


def ask_approver(approver: CommandApprover | None, question: CommandQuestion) -> CommandAnswer:
    """Return the approver's answer. An approver that fails refuses, and the reason names the failure. Only exceptions
    that are not an ``Exception`` (Ctrl-C) pass through."""
    if approver is None:
        return CommandAnswer(False, by="nobody", reason="it needs an approval, and nobody is there to be asked")
    try:
        answer: Any = approver(question)
    except Exception as error:  # noqa: BLE001 - a failure of the caller's code must not allow the command
        detail = f": {error}" if str(error) else ""
        return CommandAnswer(False, by="nobody", reason=f"the approver failed: {type(error).__name__}{detail}")
    # Only a real bool: a truthy value, such as the text "no", must not allow.
    if not isinstance(answer, CommandAnswer) or type(answer.allow) is not bool or type(answer.keep) is not bool:
        returned = type(answer).__name__ if not isinstance(answer, CommandAnswer) else f"allow={answer.allow!r}"
        reason = f"the approver returned {returned}, where a CommandAnswer with True or False is needed"
        return CommandAnswer(False, by="nobody", reason=reason[:500])
    return answer


def is_same_question(first: CommandQuestion | HostQuestion, second: CommandQuestion | HostQuestion) -> bool:
    """Return whether an answer to one question answers the other."""
    first_key, second_key = (
        (one.fingerprint, one.fork, one.agent, getattr(one, "hold", "")) for one in (first, second)
    )
    return type(first) is type(second) and bool(first.fingerprint) and first_key == second_key


def explain_difference(before: CommandQuestion, now: CommandQuestion) -> str:
    """Return why an answer to ``before`` does not answer ``now``, though both are about the same command; empty if they
    are about different commands."""
    if (before.command, before.fork, before.agent) != (now.command, now.fork, now.agent):
        return ""
    if before.cwd != now.cwd:
        return ""
    if before.verdict[:3] != now.verdict[:3]:
        return f"the verdict has changed ({before.verdict.rule} → {now.verdict.rule})"
    if before.terms != now.terms:
        removed = [term for term in before.terms if term not in now.terms]
        added = [term for term in now.terms if term not in before.terms]
        return f"the terms have changed ({', '.join(removed) or '-'} → {', '.join(added) or '-'})"
    old, new = dict(before.files), dict(now.files)
    changed = [path for path in sorted(old.keys() | new.keys()) if old.get(path) != new.get(path)]
    if not changed:
        is_hidden = any(b"[redacted]" in word for word in now.command)
        return f"{'a hidden value, or ' if is_hidden else ''}a variable that decides what is run has changed"

    rest = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
    return f"{show(changed[0])}{rest} changed"
