"""What of a project's policy loosens, and whether the user of this machine has trusted that.

A cloned project brings a policy that a stranger wrote, and may bring files that are meant to be for one machine only.
What in them tightens always holds. What loosens holds once the user has seen it and said so, or was asked about it by
mudroom; what was seen is kept outside the project, in mudroom's state, for its owner alone.

Rules of this file: the record says what was trusted, item by item, not that the file was. A file that loosens no more
and tightens no less is trusted, however it was edited; of one that loosens more, what is more is left out; of one that
has dropped something that tightened, all that loosens is, for it was trusted together with that. A record that cannot
be read is none.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from mudroom.core.command.policy import BY_CLASS, RANKS, STRICTNESS, ClassRule, CommandRule, Pattern
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.policy.parse import ROLE, GivenSetting

SCHEMA = "mudroom.policy.trust/1"
ANSWER = "answer"
"""In place of a setting's key: of what stands in no policy file, and is looked after by who reads it."""
_LIMIT = 4 << 20
_PROJECT = RANKS.index("project")
MILD = STRICTNESS["allow_with_checkpoint"]
_HOLDING = ("network.ask", "network.deny", "network.inspect", "secrets.mask", "commands.rules")
"""Lists whose items tighten, if they do not loosen."""


class TrustJudgement(NamedTuple):
    given: tuple[GivenSetting, ...]
    """What holds, but for ``unseen``."""
    left_out: tuple[GivenSetting, ...] = ()
    why: str = ""
    """Why something was left out, a clause."""
    unseen: tuple[GivenSetting, ...] = ()
    """What is said to be for this machine and nobody here has seen: it holds as the project's, beside that."""


def judge(
    project: bytes, state: bytes, given: Sequence[GivenSetting], own_roles: Collection[str], *, trusts_all: bool
) -> TrustJudgement:
    """``given``: what the project says. ``own_roles``: roles that the user's own files say something of."""
    if trusts_all or not given:
        return TrustJudgement(tuple(given))
    near = seen(project, state)
    free = freeing(given, own_roles)
    trusted, why = _trusted(project, state, given) if any(loosens(one, free) for one in given) else ((), "")
    # Whose role is free is known once it is known what of the roles holds: a role of which nothing loosens tightens.
    held = [one for one in given if (mark(one) in trusted if loosens(one) else not one.local or mark(one) in near)]
    free = freeing(held, own_roles)
    out = [one for one in given if loosens(one, free) and mark(one) not in trusted]
    gone = set(map(id, out))
    kept = [one for given_one in given for one in _kept(given_one, gone)]
    return TrustJudgement(
        tuple(one for one in kept if not one.local or mark(one) in near),
        tuple(out),
        why if out else "",
        tuple(_demoted(one) for one in kept if one.local and mark(one) not in near),
    )


def freeing(given: Iterable[GivenSetting], own_roles: Collection[str]) -> frozenset[str]:
    """Roles that can make an agent freer: those that the user's own files say something of, which may be anything, and
    those of which something that is given loosens, or is for this machine, where it counts more than the user's word
    for all projects."""
    return frozenset(own_roles).union(*(_roles_in(one) for one in given if one.local or loosens(one)))


def roles_in(given: Iterable[GivenSetting]) -> frozenset[str]:
    """Roles that these say something of, and names that a rule of theirs is for: a role may have an agent's name."""
    return frozenset[str]().union(*map(_roles_in, given))


def _roles_in(one: GivenSetting) -> Iterable[str]:
    if one.key.startswith("roles."):
        yield one.key.split(".")[1]
    if one.setting.adds and isinstance(one.value[0], CommandRule):
        yield from one.value[0].agents


def loosens(one: GivenSetting, free: Collection[str] = ()) -> bool:
    """Whether it can make a command freer than it would be without it. ``free``: the roles that can (``freeing``)."""
    if one.setting is ROLE:
        return one.key.startswith("agents.") and one.value in free
    value = one.value[0] if one.setting.adds else one.value
    if isinstance(value, ClassRule):
        return STRICTNESS[value.action] < STRICTNESS[BY_CLASS[value.name]]
    if isinstance(value, CommandRule):
        return STRICTNESS[value.action] <= MILD
    return one.setting.loosens(value)


def remember(
    project: bytes,
    state: bytes,
    given: Sequence[GivenSetting],
    own_roles: Collection[str],
    now: int,
    also: Iterable[str] = (),
    denied: Iterable[str] = (),
) -> None:
    """Trust all of what is given now, and nothing else but ``also`` (items as ``mark`` has them). ``denied``: answers
    that are missed if they go (``vouch``). ``now``: ns. Durable when it returns."""
    free = freeing(given, own_roles)
    holding = [[mark(one), one.key, _plain(one)] for one in given if _missed(one, free)]
    with _changing(project, state) as record:
        record["loosens"] = sorted({*also, *(mark(one) for one in given if loosens(one, free))})
        record["holds"], record["time"] = holding + [[text, ANSWER, None] for text in denied], now


def begin(project: bytes, state: bytes, given: Sequence[GivenSetting], own_roles: Collection[str], now: int) -> None:
    """Trust all of a first policy of the project, which mudroom has just written; nothing of one that was there before.
    What is for this machine stays as it is, answers included. ``now``: ns. Durable when it returns."""
    free = freeing(given, own_roles)
    with _changing(project, state) as record:
        near = [text for text in record["loosens"] if text.startswith(local(""))]
        record["loosens"] = sorted({*near, *(mark(one) for one in given if loosens(one, free))})
        record["holds"] = [row for row in record["holds"] if row[0].startswith(local(""))]
        record["holds"] += [[mark(one), one.key, _plain(one)] for one in given if _missed(one, free)]
        record["time"] = now


def vouch(
    project: bytes,
    state: bytes,
    coming: Iterable[str] = (),
    going: Iterable[str] = (),
    denied: Iterable[tuple[str, str]] = (),
) -> None:
    """Trust what the user has just been asked about, or has said on a command line, beside all else; no longer what is
    ``going``, nor miss it if it tightened. Items as ``mark`` has them. ``denied``: (item, key) of what tightens and is
    missed from here on; a key is a setting's, or ``ANSWER``. Say it when it stands in its file, not before."""
    new = dict(denied)
    with _changing(project, state) as record:
        gone = set(going)
        record["loosens"] = sorted({*record["loosens"], *coming} - gone)
        record["holds"] = [row for row in record["holds"] if row[0] not in gone and row[0] not in new]
        record["holds"] += [[text, key, None] for text, key in new.items()]


def denied(project: bytes, state: bytes) -> frozenset[str]:
    """The answers that tighten and are to be there."""
    return frozenset(text for text, key, _value in _of(project, state)["holds"] if key == ANSWER)


def vouched(project: bytes, state: bytes) -> frozenset[str]:
    """The items that are trusted, as ``mark`` has them."""
    return frozenset(_of(project, state)["loosens"])


def seen(project: bytes, state: bytes) -> frozenset[str]:
    """What was there when the user has last looked, what tightens included, and what was answered since."""
    record = _of(project, state)
    return frozenset([*record["loosens"], *(row[0] for row in record["holds"])])


def mark(one: GivenSetting) -> str:
    """An item as it is compared: what is for this machine counts more, and is another one."""
    return local(said(one)) if one.local else said(one)


def local(text: str) -> str:
    return "local " + text


@contextmanager
def _changing(project: bytes, state: bytes) -> Iterator[dict[str, Any]]:
    """The record, to be changed and written; others that want to change it wait. Raises MudroomError if it cannot be
    written."""
    path = place(state, project)
    try:
        with _turn(path):
            record = _of(project, state)
            yield record
            _write(path, record)
    except OSError as error:
        raise MudroomError(f"{show(path)} cannot be written: {error.strerror}", "it is then not trusted") from error


@contextmanager
def _turn(path: bytes) -> Iterator[None]:
    import fcntl

    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    lock = os.open(path + b".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _write(path: bytes, record: dict[str, Any]) -> None:
    """Durable when it returns."""
    import json

    beside = path + b".new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(beside, flags, 0o600), "wb") as stream:
        stream.write(json.dumps(record, indent=1).encode("utf-8", "surrogateescape"))
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(beside, path)


def _of(project: bytes, state: bytes) -> dict[str, Any]:
    """The record of this project; an empty one if there is none."""
    name = os.fsdecode(project)
    found = _read(place(state, project))
    if found is not None and found.get("project") == name:
        return found
    return {"schema": SCHEMA, "project": name, "time": 0, "loosens": [], "holds": []}


def forget(project: bytes, state: bytes) -> bool:
    """Whether there was anything to forget."""
    try:
        os.unlink(place(state, project))
    except FileNotFoundError:
        return False
    return True


def place(state: bytes, project: bytes) -> bytes:
    """Of the record: a hash of the project's path, which is in the record, too."""
    from _blake2 import blake2b

    return state + b"/trust/" + blake2b(project, digest_size=16).hexdigest().encode() + b".json"


def said(one: GivenSetting) -> str:
    """One item as people read it, and as it is compared: all that it does, nothing of where it stands."""
    value = one.value[0] if one.setting.adds else one.value
    key = _text(one.key)
    if isinstance(value, ClassRule):
        return f"{key}: {value.action}"
    if isinstance(value, CommandRule):
        who = f" for {', '.join(map(repr, value.agents))}" if value.agents else ""
        return f"{key}: {value.action} {_words(value.pattern)}{'' if value.exact else ' …'}{who}"
    if hasattr(value, "set_headers"):
        return f"{key}: {_host(value)}"
    if one.key == "user_commands.trusted":
        return f"{key}: {_words(value)} …"
    if one.setting.own_first:  # a command: of words in another order, or joined, something else comes
        return f"{key}: {' '.join(map(_quoted, value))}"
    if isinstance(value, tuple):
        return f"{key}: {' '.join(map(_shown, value))}"
    return f"{key}: {_shown(value)}"


def _text(text: str) -> str:
    """A stranger's, on its way to a terminal."""
    return show(text.encode("utf-8", "backslashreplace"))


def _words(pattern: Pattern) -> str:
    return " ".join("|".join(map(_quoted, word)) for word in pattern)


def _quoted(word: bytes) -> str:
    shown = show(word)
    return shown if shown.isascii() and shown and not set(shown) & set(" |'\"…") else repr(shown)


def _shown(value: Any) -> str:
    if isinstance(value, bytes):
        return show(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _host(rule: Any) -> str:
    from mudroom.core.network.host_rules import show_rule

    words = [show_rule(rule)]
    if rule.action != "allow":
        words.append(rule.action)
    words += ["may be private"] if rule.private else []
    words += [
        f"{name} {', '.join(map(repr, found))}" for name in ("methods", "paths") if (found := getattr(rule, name))
    ]
    words += [f"set {name}: {value!r}" for name, value in rule.set_headers]
    words += [f"remove {name}" for name in rule.remove_headers]
    return ", ".join(words)


def _trusted(project: bytes, state: bytes, given: Sequence[GivenSetting]) -> tuple[Collection[str], str]:
    """What of it was trusted, and why the rest was not."""
    record = _of(project, state)
    now = {mark(one) for one in given}
    current = {("local " if one.local else "") + one.key: one for one in given}
    for text, key, value in record["holds"]:
        if key == ANSWER:
            continue
        one = current.get("local " + key if text.startswith("local ") else key)
        if text not in now and not _as_strict(one, value):
            return (), f"it no longer says {text}, which it did when it was trusted"
    seen = record["time"] > 0
    return set(record["loosens"]), (
        "it says more than when it was trusted" if seen else "nobody has trusted it on this machine"
    )


def _as_strict(one: GivenSetting | None, before: Any) -> bool:
    if one is None or before is None:
        return False
    if isinstance(one.value, ClassRule):
        return before in STRICTNESS and STRICTNESS[one.value.action] >= STRICTNESS[before]
    if one.setting.stricter is None:
        return False
    before = tuple(before) if isinstance(before, list) else before
    try:
        return bool(one.setting.stricter(one.value, before) == one.value)
    except (TypeError, ValueError):
        return False


def holds(one: GivenSetting) -> bool:
    """Whether it tightens, or may: to drop it could make a command freer."""
    if one.setting is ROLE:
        return one.key.startswith("agents.")
    if isinstance(one.value, ClassRule):
        return True
    if one.setting.adds:
        return one.key in _HOLDING or one.key.endswith(".rules")
    return one.setting.stricter is not None or one.setting.own_first


def _missed(one: GivenSetting, free: Collection[str]) -> bool:
    """Whether what loosens was trusted together with it. What does both is."""
    return holds(one) and (not loosens(one, free) or one.setting is ROLE or one.setting.own_first or _asks(one))


def _plain(one: GivenSetting) -> Any:
    if isinstance(one.value, ClassRule):
        return one.value.action
    return None if one.setting.adds or one.setting is ROLE or one.setting.own_first else one.value


def _demoted(one: GivenSetting) -> GivenSetting:
    """What says that it is for this machine, and nobody here has seen it, counts as the project's."""
    value = one.value
    if isinstance(value, ClassRule):
        value = value._replace(rank=_PROJECT)
    elif one.setting.adds and isinstance(value[0], CommandRule):
        rule = value[0]
        value = (rule._replace(rank=_PROJECT, floor=rule.floor or rule.action == "require_approval"),)
    return one._replace(local=False, value=value)


def _kept(one: GivenSetting, out: Collection[int]) -> Iterable[GivenSetting]:
    """What is left of an item that is not believed: a rule that asks for a checkpoint still does, where none would be
    made; one about a host that asks does, and opens nothing private and changes no header."""
    if id(one) not in out:
        yield one
    elif one.setting.adds and isinstance(one.value[0], CommandRule) and one.value[0].action != "allow":
        yield one._replace(value=(one.value[0]._replace(floor=True),))
    elif _asks(one):
        yield one._replace(value=(one.value[0]._replace(private=False, set_headers=(), remove_headers=()),))


def _asks(one: GivenSetting) -> bool:
    """About a host."""
    return one.setting.adds and hasattr(one.value[0], "set_headers") and one.value[0].action == "ask"


def _read(path: bytes) -> dict[str, Any] | None:
    """A record; None if there is none, if it could be somebody else's, or if it is damaged."""
    import json

    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as stream:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode) or info.st_uid not in (os.geteuid(), 0) or info.st_mode & 0o022:
            return None
        data = stream.read(_LIMIT)
    try:
        found = json.loads(data)
        whole = found["schema"] == SCHEMA and all(isinstance(one, str) for one in found["loosens"])
        whole = whole and isinstance(found["time"], int)
        whole = whole and all(len(one) == 3 and isinstance(one[1], str) for one in found["holds"])
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return found if whole else None
