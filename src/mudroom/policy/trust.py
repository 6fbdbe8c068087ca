"""Find the items in a project's policy that loosen, and whether this machine's user has trusted them.

A cloned project brings a policy that a stranger wrote, and may bring files that claim to be for one machine only. An
item that tightens always applies. An item that loosens applies once the user has seen and confirmed it, or was asked
about it by mudroom. The trusted items are recorded outside the project, in mudroom's state, readable by its owner
alone.

Rules of this file: the record lists the trusted items, not the file. A file that loosens no more and tightens no less
is trusted, however it was edited. If a file loosens more, the additional items are left out. If a file has dropped an
item that tightened, all its items that loosen are left out, because they were trusted together with it. A record that
cannot be read counts as missing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from mudroom.core.command.policy import RANKS, STRICTNESS, ClassRule, CommandRule, Pattern
from mudroom.core.network.host_rules import show_rule
from mudroom.core.settings import StartCommand
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.policy.parse import ROLE, GivenSetting
from mudroom.policy.yaml import shown_text
from mudroom.stage import disk, safe_open
from mudroom.stage.private_file import is_own
from mudroom.typing import Any, NamedTuple

SCHEMA = "mudroom.policy.trust/1"
ANSWER = "answer"
"""Stands where a setting's key would be: an item outside the policy files, which its own reader checks."""
_LIMIT = 4 << 20
_PROJECT = RANKS.index("project")


class TrustJudgement(NamedTuple):
    given: tuple[GivenSetting, ...]
    """The items that apply, without ``unseen``."""
    left_out: tuple[GivenSetting, ...] = ()
    why: str = ""
    """Why items were left out; a clause."""
    unseen: tuple[GivenSetting, ...] = ()
    """Items that claim to be for this machine but that its user has not seen. They apply beside the project's items,
    with the project's rank."""


def judge(
    project: bytes, state: bytes, given: Sequence[GivenSetting], own_roles: Collection[str], *, trusts_all: bool
) -> TrustJudgement:
    """Judge ``given``, the project's items. ``own_roles``: roles that the user's own files mention."""
    if trusts_all or not given:
        return TrustJudgement(tuple(given))
    seen_here = seen(project, state)
    free = freeing_roles(given, own_roles)
    trusted, why = _trusted(project, state, given) if any(loosens(item, free) for item in given) else ((), "")
    # Which roles are free depends on the role items that apply: a role without any loosening item tightens.
    applied = [
        item
        for item in given
        if (mark(item) in trusted if loosens(item) else not item.local or mark(item) in seen_here)
    ]
    free = freeing_roles(applied, own_roles)
    out = [item for item in given if loosens(item, free) and mark(item) not in trusted]
    gone = set(map(id, out))
    kept = [item for project_item in given for item in _reduce(project_item, gone)]
    return TrustJudgement(
        tuple(item for item in kept if not item.local or mark(item) in seen_here),
        tuple(out),
        why if out else "",
        tuple(_demote(item) for item in kept if item.local and mark(item) not in seen_here),
    )


def freeing_roles(given: Iterable[GivenSetting], own_roles: Collection[str]) -> frozenset[str]:
    """Return the roles that can make an agent freer. Those are the roles that the user's own files mention, because
    they may hold anything, and the roles with a given item that loosens, or that is for this machine, where it outranks
    the user's files for all projects."""
    return frozenset(own_roles).union(*(_roles_in(item) for item in given if item.local or loosens(item)))


def roles_in(given: Iterable[GivenSetting]) -> frozenset[str]:
    """Return the roles that these items mention, and the names that their rules are for: a role may have an agent's
    name."""
    return frozenset[str]().union(*map(_roles_in, given))


def _roles_in(item: GivenSetting) -> Iterable[str]:
    if item.key.startswith("roles."):
        yield item.key.split(".")[1]
    if item.setting.adds and isinstance(item.value[0], CommandRule):
        yield from item.value[0].agents


def loosens(item: GivenSetting, free: Collection[str] = ()) -> bool:
    """Return whether an item can make a command freer than without it. ``free``: the roles that can
    (``freeing_roles``)."""
    if item.setting is ROLE:
        return item.key.startswith("agents.") and item.value in free
    return item.setting.loosens(item.value[0] if item.setting.adds else item.value)


def remember(
    project: bytes,
    state: bytes,
    given: Sequence[GivenSetting],
    own_roles: Collection[str],
    now: int,
    also: Iterable[str] = (),
    denied: Iterable[str] = (),
) -> None:
    """Trust all given items, and only ``also`` besides (items in the form of ``mark``). ``denied``: answers whose
    removal has to be noticed (``vouch``). ``now``: nanoseconds. Durable when it returns."""
    free = freeing_roles(given, own_roles)
    holding = [[mark(item), item.key, _plain(item)] for item in given if _must_stay(item, free)]
    with _edit_record(project, state) as record:
        record["loosens"] = sorted({*also, *(mark(item) for item in given if loosens(item, free))})
        record["holds"], record["time"] = holding + [[text, ANSWER, None] for text in denied], now


def begin(project: bytes, state: bytes, given: Sequence[GivenSetting], own_roles: Collection[str], now: int) -> None:
    """Trust a project's first policy, which mudroom has just written, and no policy from before. Items for this machine
    keep their state, answers included. ``now``: nanoseconds. Durable when it returns."""
    free = freeing_roles(given, own_roles)
    with _edit_record(project, state) as record:
        near = [text for text in record["loosens"] if text.startswith(local(""))]
        record["loosens"] = sorted({*near, *(mark(item) for item in given if loosens(item, free))})
        record["holds"] = [row for row in record["holds"] if row[0].startswith(local(""))]
        record["holds"] += [[mark(item), item.key, _plain(item)] for item in given if _must_stay(item, free)]
        record["time"] = now


def vouch(
    project: bytes,
    state: bytes,
    coming: Iterable[str] = (),
    going: Iterable[str] = (),
    denied: Iterable[tuple[str, str]] = (),
) -> None:
    """Also trust ``coming``: items that the user was just asked about, or has given on a command line. Items in
    ``going`` are no longer trusted, and their absence is no longer noticed. Items have the form that ``mark`` returns.
    ``denied``: (item, key) for items that tighten and whose removal has to be noticed from now on; a key is a
    setting's, or ``ANSWER``. Call it with ``coming`` before the item is written to its file, so that a concurrent
    reader finds it trusted; with ``going`` and ``denied`` afterwards."""
    new = dict(denied)
    with _edit_record(project, state) as record:
        gone = set(going)
        record["loosens"] = sorted({*record["loosens"], *coming} - gone)
        record["holds"] = [row for row in record["holds"] if row[0] not in gone and row[0] not in new]
        record["holds"] += [[text, key, None] for text, key in new.items()]


def denied(project: bytes, state: bytes) -> frozenset[str]:
    """Return the answers that tighten and must not be missing."""
    return frozenset(text for text, key, _value in _load_record(project, state)["holds"] if key == ANSWER)


def vouched(project: bytes, state: bytes) -> frozenset[str]:
    """Return the trusted items, as ``mark`` returns them."""
    return frozenset(_load_record(project, state)["loosens"])


def seen(project: bytes, state: bytes) -> frozenset[str]:
    """Return the items that existed when the user last confirmed them, including those that tighten, and later
    answers."""
    record = _load_record(project, state)
    return frozenset([*record["loosens"], *(row[0] for row in record["holds"])])


def mark(item: GivenSetting) -> str:
    """Return an item's text for comparison. An item for this machine counts more, so it differs from the same item in
    the project."""
    return local(describe(item)) if item.local else describe(item)


def local(text: str) -> str:
    return "local " + text


@contextmanager
def _edit_record(project: bytes, state: bytes) -> Iterator[dict[str, Any]]:
    """Yield the record for changes, and write it afterwards; other writers wait. Raise MudroomError if it cannot be
    written."""
    path = record_path(state, project)
    try:
        with _lock(path):
            record = _load_record(project, state)
            yield record
            _write(path, record)
    except OSError as error:
        raise MudroomError(
            f"{show(path)} cannot be written: {error.strerror}", "the policy is not trusted until it can be written"
        ) from error


@contextmanager
def _lock(path: bytes) -> Iterator[None]:
    if sys.platform == "win32":
        from mudroom.core.registry import twin

        fcntl = twin("lock")
    else:
        import fcntl

    from mudroom.stage.private_directory import make_private, require_private

    require_private(os.path.dirname(os.path.dirname(path)))
    make_private(os.path.dirname(path))
    lock = disk.open_path(path + b".lock", os.O_RDWR | os.O_CREAT | disk.O_NOFOLLOW | disk.O_CLOEXEC, 0o600)
    with Descriptor(lock):
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(path: bytes, record: dict[str, Any]) -> None:
    """Write the record atomically. Durable when it returns."""
    import json

    safe_open.replace(path, json.dumps(record, indent=1).encode("utf-8", "surrogateescape"))


def _load_record(project: bytes, state: bytes) -> dict[str, Any]:
    """Return this project's record, or an empty one."""
    name = os.fsdecode(project)
    record = _read(record_path(state, project))
    if record is not None and record.get("project") == name:
        return record
    return {"schema": SCHEMA, "project": name, "time": 0, "loosens": [], "holds": []}


def forget(project: bytes, state: bytes) -> bool:
    """Delete the record. Return whether it existed."""
    try:
        os.unlink(record_path(state, project))
    except FileNotFoundError:
        return False
    return True


def record_path(state: bytes, project: bytes) -> bytes:
    """Return the record's path. Its name is a hash of the project's path, which is also stored in the record."""
    from _blake2 import blake2b

    return state + b"/trust/" + blake2b(project, digest_size=16).hexdigest().encode() + b".json"


def describe(item: GivenSetting) -> str:
    """Return an item as text for users and for comparison: its full effect, without its position."""
    value = item.value[0] if item.setting.adds else item.value
    key = shown_text(item.key)
    if isinstance(value, ClassRule):
        return f"{key}: {value.action}"
    if isinstance(value, CommandRule):
        suffix = f" for {', '.join(map(repr, value.agents))}" if value.agents else ""
        suffix = f" (as of {value.bound}){suffix}" if value.bound else suffix
        return f"{key}: {value.action} {_words(value.pattern)}{'' if value.exact else ' …'}{suffix}"
    if hasattr(value, "set_headers"):
        return f"{key}: {_host(value)}"
    if item.key == "user_commands.trusted":
        return f"{key}: {_words(value)} …"
    if item.key == "start.commands":
        return f"{key}: {' | '.join(map(_start, value))}"
    if item.setting.own_first:  # a command: the order and the limits of its words matter
        return f"{key}: {' '.join(map(_quoted, value))}"
    if isinstance(value, tuple):
        return f"{key}: {' '.join(map(_show_value, value))}"
    return f"{key}: {_show_value(value)}"


def _words(pattern: Pattern) -> str:
    return " ".join("|".join(map(_quoted, word)) for word in pattern)


def _quoted(word: bytes) -> str:
    shown = show(word)
    return shown if shown.isascii() and shown and not set(shown) & set(" |'\"…") else repr(shown)


def _start(command: StartCommand) -> str:
    """Return a text that no other command has: a word with ``|`` is quoted."""
    ready = ["|port:", str(command.port)] if command.port else ["|ready:", *map(_quoted, command.ready)]
    return " ".join([*map(_quoted, command.argv), *(ready if len(ready) > 1 else ())])


def _show_value(value: Any) -> str:
    if isinstance(value, bytes):
        return show(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return shown_text(value)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _host(rule: Any) -> str:
    words = [show_rule(rule)]
    if rule.action != "allow":
        words.append(rule.action)
    words += ["may be private"] if rule.private else []
    words += [
        f"{name} {', '.join(map(repr, values))}" for name in ("methods", "paths") if (values := getattr(rule, name))
    ]
    words += [f"set {name}: {value!r}" for name, value in rule.set_headers]
    words += [f"remove {name}" for name in rule.remove_headers]
    words += ["only these requests"] if rule.only else []
    words += [f"{rule.foreign} foreign credentials"] if rule.foreign else []
    return ", ".join(words)


def _trusted(project: bytes, state: bytes, given: Sequence[GivenSetting]) -> tuple[Collection[str], str]:
    """Return the trusted items, and the reason why others are not."""
    record = _load_record(project, state)
    marks = {mark(item) for item in given}
    current = {("local " if item.local else "") + item.key: item for item in given}
    for text, key, value in record["holds"]:
        if key == ANSWER:
            continue
        item = current.get("local " + key if text.startswith("local ") else key)
        if text not in marks and not _as_strict(item, value):
            return (), f"it no longer says {text}, which it did when it was trusted"
    seen = record["time"] > 0
    return set(record["loosens"]), (
        "it says more than when it was trusted" if seen else "it is not trusted on this machine"
    )


def _as_strict(item: GivenSetting | None, before: Any) -> bool:
    if item is None or before is None:
        return False
    if isinstance(item.value, ClassRule):
        return before in STRICTNESS and STRICTNESS[item.value.action] >= STRICTNESS[before]
    if item.setting.stricter is None:
        return False
    before = tuple(before) if isinstance(before, list) else before
    try:
        return bool(item.setting.stricter(item.value, before) == item.value)
    except (TypeError, ValueError):
        return False


def holds(item: GivenSetting) -> bool:
    """Return whether an item tightens, or may tighten: dropping it could make a command freer."""
    if item.setting is ROLE:
        return item.key.startswith("agents.")
    if isinstance(item.value, ClassRule):
        return True
    if item.setting.adds:
        return item.setting.tightens
    return item.setting.stricter is not None or item.setting.own_first


def _must_stay(item: GivenSetting, free: Collection[str]) -> bool:
    """Return whether loosening items were trusted together with this one. An item that both loosens and holds
    counts."""
    does_both = item.setting is ROLE or item.setting.own_first or _asks(item) or _binds(item)
    return holds(item) and (does_both or not loosens(item, free))


def _plain(item: GivenSetting) -> Any:
    if isinstance(item.value, ClassRule):
        return item.value.action
    return None if item.setting.adds or item.setting is ROLE or item.setting.own_first else item.value


def _demote(item: GivenSetting) -> GivenSetting:
    """Return an unseen local item with the project's rank."""
    value = item.value
    if isinstance(value, ClassRule):
        value = value._replace(rank=_PROJECT)
    elif item.setting.adds and isinstance(value[0], CommandRule):
        rule = value[0]
        value = (rule._replace(rank=_PROJECT, floor=rule.floor or rule.action == "require_approval"),)
    return item._replace(local=False, value=value)


def _reduce(item: GivenSetting, out: Collection[int]) -> Iterable[GivenSetting]:
    """Yield the part of an untrusted item that still applies. A command rule that requires a checkpoint still does
    where no checkpoint would be made. A host rule that asks still asks, but opens no private host and changes no
    header."""
    if id(item) not in out:
        yield item
    elif item.setting.adds and isinstance(item.value[0], CommandRule) and item.value[0].action != "allow":
        yield item._replace(value=(item.value[0]._replace(floor=True),))
    elif _asks(item):
        yield item._replace(value=(item.value[0]._replace(private=False, set_headers=(), remove_headers=()),))


def _binds(item: GivenSetting) -> bool:
    """Return whether an item is a host rule that denies other requests to its host, or foreign credentials there."""
    if not item.setting.adds or not hasattr(item.value[0], "set_headers"):
        return False
    return bool(item.value[0].only or item.value[0].foreign)


def _asks(item: GivenSetting) -> bool:
    """Return whether an item is a host rule that asks."""
    return item.setting.adds and hasattr(item.value[0], "set_headers") and item.value[0].action == "ask"


def _read(path: bytes) -> dict[str, Any] | None:
    """Return a record, or None if it is missing, damaged, or could have been written by another user."""
    import json

    try:
        descriptor = disk.open_path(path, os.O_RDONLY | disk.O_NOFOLLOW | disk.O_NONBLOCK | disk.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as stream:
        if not is_own(descriptor):
            return None
        data = stream.read(_LIMIT)
    try:
        record = json.loads(data)
        is_valid = record["schema"] == SCHEMA and all(isinstance(entry, str) for entry in record["loosens"])
        is_valid = is_valid and isinstance(record["time"], int)
        is_valid = is_valid and all(len(entry) == 3 and isinstance(entry[1], str) for entry in record["holds"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return record if is_valid else None
