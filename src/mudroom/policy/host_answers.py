"""What was answered on this machine: ``.mudroom/local/permissions.yaml`` of the project, beside its policy.

Rules of this file: people write it, too, so it is read strictly, and what else stands in it stays. A file that cannot
be read or understood is an error, never the same as none: it may hold denials. A sandbox may read it and cannot change
it, as all of ``.mudroom``. What is to be written is read first: it says the old and the new and nothing else, or it is
not written.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mudroom.core.tree.path import show
from mudroom.policy.answer_file import AnswerFile
from mudroom.policy.local import Local

if TYPE_CHECKING:
    from mudroom.core.network.host_rules import Action, HostRule

    Rows = list[tuple[str, HostRule]]
    """(section, rule)."""

NAME = b"permissions.yaml"
SECTIONS: dict[str, tuple[Action, bool]] = {
    "allow": ("allow", False),
    "ask": ("ask", False),
    "deny": ("deny", False),
    "private": ("allow", True),
}
"""Key of the file → the action of its rules, and whether their hosts may be private."""
_HEAD = b"""\
# Which hosts the commands of this project may reach, as it was answered on this machine. Written by answers of "always"
# and "never", and by mudroom net; yours to edit. What is for everybody stands in ../policy.yaml, under network:
"""


class HostAnswerFile(NamedTuple):
    there: bool
    """It was in the file already."""
    replaced: tuple[HostRule, ...]
    """What said otherwise about the very same hosts and ports, and is gone."""


def load(project: bytes, state: bytes | None = None, *, trusts_all: bool = False) -> tuple[HostRule, ...]:
    """The rules; none if there is no file. With mudroom's ``state`` only those that were answered on this machine, or
    trusted since (``policy/trust.py``), or that allow nothing: the file may have come with the project. If a denial is
    gone
    that was answered here, nothing is allowed: something else has changed the file. Raises UsageError, one line that
    names the file and mostly the line."""
    rows = _load(project)
    if state is None or trusts_all or all(rule.action != "allow" for _section, rule in rows):
        return tuple(rule for _section, rule in rows)
    from mudroom.policy.trust import vouched

    known = vouched(project, state) if not _missing(project, state, rows) else frozenset()
    return tuple(rule for section, rule in rows if rule.action != "allow" or _mark(section, rule) in known)


def missing(project: bytes, state: bytes) -> list[str]:
    """What was denied, or is to be asked about, as it was answered on this machine, and is not in the file any more
    (items as ``trust.mark`` has them)."""
    return _missing(project, state, _load(project))


def _missing(project: bytes, state: bytes, rows: Rows) -> list[str]:
    from mudroom.policy.trust import denied

    return sorted(denied(project, state).difference(_mark(section, rule) for section, rule in rows))


def tightening(project: bytes) -> list[str]:
    """What of the file is missed if it goes."""
    return [_mark(section, rule) for section, rule in _load(project) if rule.action != "allow"]


def loosening(project: bytes) -> list[tuple[str, str]]:
    """What of the file needs trust: (item as ``trust.mark`` has it, "file:line")."""
    return [(_mark(section, rule), rule.source) for section, rule in _load(project) if rule.action == "allow"]


def _load(project: bytes) -> Rows:
    with Local(project) as local:
        data = local.read(NAME)
        return _rows(data, local.shown(NAME)) if data is not None else []


def _mark(section: str, rule: HostRule) -> str:
    from mudroom.policy.trust import local

    return local(f"network.{section}: {_text(rule)}")


class HostRules:
    """All rules that hold for a project, as they are now: those of the policy and those of this machine.

    Called, it gives the very same object until one of the files has changed. As long as one of them cannot be
    understood it raises as ``load`` does, each time. ``remember`` keeps an answer."""

    def __init__(
        self,
        project: bytes,
        policy: Callable[[], Sequence[HostRule]],
        note: Callable[[], str] = lambda: "",
        files: Callable[[], Sequence[bytes]] = tuple,
        *,
        state: bytes | None = None,
        trusts_all: bool = False,
    ) -> None:
        """``policy`` reads the rules of the policy, ``files`` are those it has last read them from beyond the project's
        own; ``note`` is the comment beside an answer that is kept; ``state`` and ``trusts_all`` as in ``load``."""
        self._project, self._policy, self._note, self._files = project, policy, note, files
        self._state, self._trusts_all = state, trusts_all
        self._rules: tuple[HostRule, ...] = ()
        self._stamp: tuple[object, ...] | None = None

    def __call__(self) -> Sequence[HostRule]:
        now = stamp(self._project, self._files())
        if now != self._stamp:
            self._stamp = None  # in case that one of them is an error
            found = (*self._policy(), *load(self._project, self._state, trusts_all=self._trusts_all))
            if found != self._rules:
                self._rules = found
            self._stamp = now if len(now) == 2 + len(self._files()) else None
        return self._rules

    def remember(self, rule: HostRule) -> None:
        keep(self._project, rule, self._note(), state=self._state)


def stamp(project: bytes, more: Sequence[bytes] = ()) -> tuple[object, ...]:
    """Differs as soon as one of the files with rules does, those of the project or ``more``: a call of stat(2) each,
    for those who want to follow them. Nothing is checked; ``load`` does that."""
    return tuple(map(_stamp, (project + b"/.mudroom/policy.yaml", project + b"/.mudroom/local/" + NAME, *more)))


def _stamp(path: bytes) -> tuple[int, ...] | int | None:
    try:
        info = os.stat(path)
    except OSError as error:
        return error.errno
    return info.st_dev, info.st_ino, info.st_ctime_ns, info.st_mode, info.st_size


def parse(data: bytes, name: str) -> tuple[HostRule, ...]:
    """``name`` is what error messages call the file."""
    return tuple(rule for _section, rule in _rows(data, name))


def keep(project: bytes, rule: HostRule, note: str = "", *, state: bytes | None = None) -> HostAnswerFile:
    """Write a rule into the file; one for the very same hosts and ports that says otherwise goes. ``note`` becomes a
    comment. With mudroom's ``state`` it is trusted on this machine, or missed if it denies and goes. Durable when it
    returns. Raises UsageError as ``load`` does, and MudroomError where the file is written in a way in which nothing
    can be added: nothing is changed then."""
    section, text = section_of(rule), _text(rule)
    if rule.action == "allow":  # before it stands there: who reads it then finds it trusted
        _vouch(project, state, coming=[_mark(section, rule)])
    before = _rows(
        _FILE.change(project, lambda key, one: key != section and one == text, [(section, text, show(note.encode()))]),
        os.fsdecode(NAME),
    )
    same = [(key, one) for key, one in before if _text(one) == text]
    going = [_mark(key, one) for key, one in same if key != section]
    _vouch(project, state, going=going, denied=[_mark(section, rule)] if rule.action != "allow" else [])
    return HostAnswerFile(any(key == section for key, _one in same), tuple(one for key, one in same if key != section))


def drop(project: bytes, text: str, *, state: bytes | None = None) -> tuple[HostRule, ...]:
    """Take out of the file what stands there for these hosts and ports, and return it. Raises ValueError if the text is
    no rule (``parse_rule``), else as ``keep``."""
    from mudroom.core.network.host_rules import parse_rule

    wanted = _text(parse_rule(text, "deny"))
    if not any(_text(one) == wanted for one in load(project)):
        return ()
    before = _rows(_FILE.change(project, lambda _key, one: one == wanted), os.fsdecode(NAME))
    gone = [(key, one) for key, one in before if _text(one) == wanted]
    _vouch(project, state, going=[_mark(key, one) for key, one in gone])
    return tuple(one for _key, one in gone)


def _vouch(
    project: bytes,
    state: bytes | None,
    coming: Sequence[str] = (),
    going: Sequence[str] = (),
    denied: Sequence[str] = (),
) -> None:
    if state is not None and (coming or going or denied):
        from mudroom.policy.trust import ANSWER, vouch

        vouch(project, state, coming, going, [(text, ANSWER) for text in denied])


def section_of(rule: HostRule) -> str:
    """The key under which a rule stands."""
    from mudroom.core.network.host_rules import parse_rule

    if rule.action != "allow":
        return rule.action
    return "private" if rule.private and not parse_rule(_text(rule), "allow").private else "allow"


def _text(rule: HostRule) -> str:
    from mudroom.core.network.host_rules import show_rule

    return show_rule(rule)


def _rows(data: bytes, name: str) -> Rows:
    from mudroom.policy.yaml import compose, host_rules, items, plain, unknown

    found: Rows = []
    for key, node, where in items(compose(data, name), name, ""):
        if key not in SECTIONS:
            raise unknown(where, "", key, SECTIONS, "key")
        if plain(node, f"{where}: {key}") is not None:  # nothing: the last text of a list was removed
            action, private = SECTIONS[key]
            found += [(key, rule) for rule in host_rules(node, f"{where}: {key}", name, action, private=private)]
    return found


_FILE = AnswerFile(
    NAME, _HEAD, tuple(SECTIONS), lambda data, name: [(key, _text(one)) for key, one in _rows(data, name)]
)
