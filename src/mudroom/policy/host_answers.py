"""Answers about hosts on this machine: the files ``permissions.yaml`` (``local_directory.py``).

Rules of this file: users edit it, too, so it is parsed strictly, and all other content stays. A file that cannot be
read or parsed is an error, never treated as missing: it may hold denials. No sandbox can change it. The new content is
parsed before it is written. If it does not hold exactly the old rows and the change, the file is not changed. A preset
stands in it as its word (``"@npm"``), so it follows later changes of the preset table.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence

from mudroom.core.network.host_entry import expand, parse_entry
from mudroom.core.network.host_rules import show_rule
from mudroom.core.tree.path import show
from mudroom.policy.answer_file import AnswerFile
from mudroom.policy.local_directory import read_answers
from mudroom.policy.trust import ANSWER, denied, local, vouch, vouched
from mudroom.policy.yaml import compose, host_rules, items, plain, unknown
from mudroom.stage.private_directory import answer_files
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mudroom.core.network.host_rules import HostRule, RuleWord

    Rows = list[tuple[str, HostRule]]
    """(section, rule)."""

NAME = b"permissions.yaml"
SECTIONS: dict[str, tuple[RuleWord, bool]] = {
    "allow": ("allow", False),
    "ask": ("ask", False),
    "deny": ("deny", False),
    "private": ("allow", True),
    "hold": ("hold", False),
}
"""Key in the file → (action of its rules, whether their hosts may be private)."""
_HEAD = b"""\
# Which hosts the commands of this project may reach, as it was answered on this machine. Written by answers of "always"
# and "never", and by mudroom net; yours to edit. What is for everybody stands in the project's policy, under network:
"""


class HostAnswerFile(NamedTuple):
    there: bool
    """Whether the rule was in the file already."""
    replaced: tuple[HostRule, ...]
    """Removed rules: the same hosts and ports with another action."""


def load(project: bytes, state: bytes | None = None, *, trusts_all: bool = False) -> tuple[HostRule, ...]:
    """Return the rules; empty if the files are missing. With mudroom's ``state``, rules that allow count only if they
    were answered on this machine or trusted since (``policy/trust.py``), because the file may have come with the
    project. If a denial that was answered here is missing, no allow counts: another program has changed the file. Raise
    UsageError, one line that names the file and usually the line."""
    return tuple(_expand(load_entries(project, state, trusts_all=trusts_all)))


def load_entries(project: bytes, state: bytes | None = None, *, trusts_all: bool = False) -> tuple[HostRule, ...]:
    """Return the rules as ``load`` does, but with presets as their words (``core/network/host_entry.py``)."""
    rows = _load(project, state)
    if state is None or trusts_all or all(rule.action != "allow" for _section, rule in rows):
        return tuple(rule for _section, rule in rows)

    trusted = vouched(project, state) if not _missing_answers(project, state, rows) else frozenset()
    return tuple(rule for section, rule in rows if rule.action != "allow" or _mark(section, rule) in trusted)


def _expand(rules: Sequence[HostRule]) -> Iterator[HostRule]:
    if rules:
        yield from expand(rules)


def missing_answers(project: bytes, state: bytes) -> list[str]:
    """Return the denials and questions that were answered on this machine and are missing in the file, in the form of
    ``trust.mark``."""
    return _missing_answers(project, state, _load(project, state))


def _missing_answers(project: bytes, state: bytes, rows: Rows) -> list[str]:
    return sorted(denied(project, state).difference(_mark(section, rule) for section, rule in rows))


def tightening_items(project: bytes, state: bytes) -> list[str]:
    """Return the items whose removal has to be noticed."""
    return [_mark(section, rule) for section, rule in _load(project, state) if rule.action != "allow"]


def loosening_items(project: bytes, state: bytes) -> list[tuple[str, str]]:
    """Return the items that need trust: (item as by ``trust.mark``, "file:line")."""
    return [(_mark(section, rule), rule.source) for section, rule in _load(project, state) if rule.action == "allow"]


def _load(project: bytes, state: bytes | None) -> Rows:
    return [row for data, shown in read_answers(project, state, NAME) for row in _rows(data, shown)]


def _mark(section: str, rule: HostRule) -> str:
    return local(f"network.{section}: {_text(rule)}")


class HostRules:
    """A project's current host rules: the policy's and this machine's.

    A call returns the same object until a file has changed. While a file cannot be parsed, each call raises as ``load``
    does. ``remember`` stores an answer.

    ``_known`` is replaced as a whole, without a lock, because several session threads call it.
    """

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
        """``policy`` reads the policy's rules. ``files`` are the files, beyond the project's own, that it last read
        them from. ``note`` returns the comment for a stored answer. ``state`` and ``trusts_all`` as in ``load``."""
        self._project, self._policy, self._note, self._files = project, policy, note, files
        self._state, self._trusts_all = state, trusts_all
        self._known: tuple[tuple[object, ...] | None, tuple[HostRule, ...]] = (None, ())
        """The files' stamp (None: read them again), and the rules."""

    def __call__(self) -> Sequence[HostRule]:
        now = stamp(self._project, self._state, self._files())
        last, known = self._known
        if now != last:
            self._known = None, known  # in case a file has an error
            rules = (*self._policy(), *load(self._project, self._state, trusts_all=self._trusts_all))
            if rules != known:
                known = rules
            self._known = now if len(now) == (2 if self._state is None else 3) + len(self._files()) else None, known
        return known

    def remember(self, rule: HostRule) -> None:
        keep(self._project, rule, self._note(), state=self._state)


def stamp(project: bytes, state: bytes | None = None, more: Sequence[bytes] = ()) -> tuple[object, ...]:
    """Return a value that changes when a file with rules changes: the project's files, or ``more``. Costs a stat(2)
    call for each file; the files are not checked."""
    return tuple(map(_stamp, (project + b"/.mudroom/policy.yaml", *answer_files(project, state, NAME), *more)))


def _stamp(path: bytes) -> tuple[int, ...] | int | None:
    try:
        if sys.platform == "win32":  # there os.stat gives the creation time as st_ctime
            from mudroom.stage.stamp import look

            info = look(path)
        else:
            info = os.stat(path)
    except OSError as error:
        return error.errno
    return info.st_dev, info.st_ino, info.st_ctime_ns, info.st_mode, info.st_size


def parse(data: bytes, name: str) -> tuple[HostRule, ...]:
    """Return the file's rules. ``name`` is shown in error messages."""
    return tuple(_expand([rule for _section, rule in _rows(data, name)]))


def keep(project: bytes, rule: HostRule, note: str = "", *, state: bytes | None = None) -> HostAnswerFile:
    """Write a rule into the file; any other rule for the same hosts and ports is removed. ``note`` becomes
    a comment. With mudroom's ``state``, the rule is trusted on this machine, or, if it denies, its later removal is
    noticed. Durable when it returns. Raise UsageError as ``load`` does, MudroomError if the file's style does not allow
    the change; the file is then unchanged."""
    section, text = section_of(rule), _text(rule)
    if rule.action == "allow":  # before the file is written, so that a concurrent reader finds the rule trusted
        _vouch(project, state, coming=[_mark(section, rule)])
    new, hosts = (section, text), _hosts(text)
    before = _FILE.change(
        project, state, lambda *row: row != new and _hosts(row[1]) == hosts, [(*new, show(note.encode()))]
    )
    same = _rows_of(before, hosts)
    others = [(key, row) for key, row in same if (key, _text(row)) != new]
    going = [_mark(key, row) for key, row in others]
    _vouch(project, state, going=going, denied=[_mark(section, rule)] if rule.action != "allow" else [])
    return HostAnswerFile(len(others) < len(same), tuple(row for _key, row in others))


def drop(project: bytes, text: str, *, state: bytes | None = None) -> tuple[HostRule, ...]:
    """Remove the rules for these hosts and ports from the file, and return them. Raise ValueError if the text is not a
    rule (``parse_entry``), else as ``keep``."""
    hosts = _text(parse_entry(text, "deny"))
    if not any(_hosts(_text(rule)) == hosts for _key, rule in _load(project, state)):
        return ()
    gone = _rows_of(_FILE.change(project, state, lambda _key, rule: _hosts(rule) == hosts), hosts)
    _vouch(project, state, going=[_mark(key, rule) for key, rule in gone])
    return tuple(rule for _key, rule in gone)


def _hosts(text: str) -> str:
    """Return a rule's text without the requests that it holds."""
    return text.partition(" ")[0]


def _rows_of(contents: Sequence[bytes], hosts: str) -> Rows:
    return [row for data in contents for row in _rows(data, os.fsdecode(NAME)) if _hosts(_text(row[1])) == hosts]


def _vouch(
    project: bytes,
    state: bytes | None,
    coming: Sequence[str] = (),
    going: Sequence[str] = (),
    denied: Sequence[str] = (),
) -> None:
    if state is not None and (coming or going or denied):
        vouch(project, state, coming, going, [(text, ANSWER) for text in denied])


def section_of(rule: HostRule) -> str:
    """Return the key under which a rule is stored."""
    if rule.action != "allow":
        return rule.action
    if rule.hold:
        return "hold"
    return "private" if rule.private and not parse_entry(_text(rule), "allow").private else "allow"


def _text(rule: HostRule) -> str:
    return show_rule(rule)


def _rows(data: bytes, name: str) -> Rows:
    rows: Rows = []
    for key, node, where in items(compose(data, name), name, ""):
        if key not in SECTIONS:
            raise unknown(where, "", key, SECTIONS, "key")
        if plain(node, f"{where}: {key}") is not None:  # empty: the list's last text was removed
            action, private = SECTIONS[key]
            rows += [(key, rule) for rule in host_rules(node, f"{where}: {key}", name, action, private=private)]
    return rows


_FILE = AnswerFile(
    NAME, _HEAD, tuple(SECTIONS), lambda data, name: [(key, _text(one)) for key, one in _rows(data, name)]
)
