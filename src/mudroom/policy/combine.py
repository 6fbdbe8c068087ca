"""All policy files of a project as one: which there are, how they meet, and what of the project's is believed.

What there is: what is built in; the project's ``.mudroom/policy.yaml``, written by whoever wrote the project; the
user's own ``policy.yaml`` for all projects; ``.mudroom/local/policy.yaml`` and ``rules.yaml``, the user's for this
project on this machine.

Rules of this file:

1. Lists add up. Of rules a denial wins (``core/command/policy.py``, ``core/network/host_rules.py``).
2. Of the user's two files the nearer counts. Between the user and the project, the stricter counts of a setting that
   protects (``Setting.stricter``); of others what is for this project: local, project, user. Which role an agent has,
   and what verifies, the user says first: another one could be milder.
3. What loosens counts in a file that lies in the project only as far as the user has trusted it, or has been asked
   about it by mudroom (``policy/trust.py``).
4. What cannot be read or understood is an error, never the same as nothing.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable

from mudroom.core.command.policy import RANKS, ClassRule, CommandRule
from mudroom.core.settings import LeftOut, Loaded
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.policy.command_answers import NAME as RULES
from mudroom.policy.command_answers import parse as parse_rules
from mudroom.policy.local import Local, read_open
from mudroom.policy.parse import ROLE, GivenSetting, PolicyFolder, parse, put
from mudroom.policy.settings_table import stricter_action
from mudroom.policy.trust import TrustJudgement, judge, place, roles_in, said

PROJECT, USER, LOCAL = (RANKS.index(name) for name in ("project", "user", "local"))
UNSEEN = -1
"""The layer of what says that it is for this machine, and nobody here has seen it."""
POLICY = b"policy.yaml"


def load(project: bytes, config: bytes, state: bytes, *, trusts_all: bool) -> Loaded:
    """``config``: the directory of the user's own files. ``trusts_all``: whoever runs this trusts any project. Raises
    UsageError naming file, line and key."""
    files = list(watched(project, config, state))
    layers = read(project, config, files)
    judged = judge(project, state, inside(layers), roles_of(layers), trusts_all=trusts_all)
    given = merge(believed(layers, judged))
    left_out = tuple(LeftOut(said(one), one.at) for one in judged.left_out)
    return Loaded(put(given, judged.left_out), left_out, judged.why, tuple(given), tuple(files))


def believed(layers: dict[int, list[GivenSetting]], judged: TrustJudgement) -> dict[int, list[GivenSetting]]:
    """The layers with what holds of them."""
    return {
        USER: layers[USER],
        PROJECT: [one for one in judged.given if not one.local],
        UNSEEN: list(judged.unseen),
        LOCAL: [one for one in judged.given if one.local],
    }


def inside(layers: dict[int, list[GivenSetting]]) -> list[GivenSetting]:
    """What lies in the project's directory, and so may have come with it: what is for this machine, too. Git puts a
    file into ``.mudroom/local`` as into any other directory, and writes over what it ignores."""
    return [*layers[PROJECT], *layers[LOCAL]]


def read(project: bytes, config: bytes, files: list[bytes] | None = None) -> dict[int, list[GivenSetting]]:
    """What each layer says, by its rank. ``files``: gets the names of those that are included."""
    included: list[bytes] = [] if files is None else files
    found = {
        USER: _read_user(config, included),
        PROJECT: read_project(project, included),
        LOCAL: _read_local(project, included),
    }
    return {rank: [_ranked(one._replace(local=rank == LOCAL), rank) for one in given] for rank, given in found.items()}


def watched(project: bytes, config: bytes, state: bytes) -> Iterable[bytes]:
    """The files whose change may change the settings. What they include is not among them."""
    yield project + b"/.mudroom"
    yield project + b"/.mudroom/" + POLICY
    yield config + b"/" + POLICY
    yield from _links(config + b"/" + POLICY)
    yield project + b"/.mudroom/local"
    yield from (project + b"/.mudroom/local/" + name for name in (POLICY, RULES))
    yield place(state, project)


def read_alone(path: bytes) -> list[GivenSetting]:
    """One file by its path, with what it includes, as if it were the project's."""
    directory, name = os.path.split(path)
    data = _read_beside(directory or b".", name)
    if data is None:
        raise UsageError(f"{show(path)}: No such file or directory")
    given = parse(data, show(path), PolicyFolder(lambda beside: _read_beside(directory, beside)))
    return [_ranked(one, PROJECT) for one in given]


def roles_of(layers: dict[int, list[GivenSetting]]) -> frozenset[str]:
    """Roles that the user's own file says something of."""
    return roles_in(layers[USER])


def merge(layers: dict[int, list[GivenSetting]]) -> list[GivenSetting]:
    """What counts of all layers, lists item by item, in the order of the layers. Raises UsageError for protections that
    exclude each other."""
    lists: list[GivenSetting] = []
    single: dict[str, dict[int, GivenSetting]] = {}
    for rank in (PROJECT, UNSEEN, USER, LOCAL):
        for one in layers.get(rank, ()):
            if one.setting.adds:
                lists.append(one)
            else:
                single.setdefault(_identity(one), {})[rank] = one
    return [*map(_of_layers, single.values()), *lists]


def _identity(one: GivenSetting) -> str:
    """run.network and network.mode are one setting."""
    return "network.mode" if one.key == "run.network" else one.key


def _of_layers(by_rank: dict[int, GivenSetting]) -> GivenSetting:
    own = by_rank.get(LOCAL, by_rank.get(USER))
    theirs = _of_strangers(by_rank.get(PROJECT), by_rank.get(UNSEEN))
    if own is None or theirs is None:
        found = own or theirs
        assert found is not None
        return found
    if own.setting.stricter is None and not isinstance(own.value, ClassRule):
        return own if LOCAL in by_rank or own.setting is ROLE or own.setting.own_first else theirs
    return _stricter(own, theirs)


def _of_strangers(one: GivenSetting | None, unseen: GivenSetting | None) -> GivenSetting | None:
    """What nobody here has seen does not replace what the project says: that may have been trusted."""
    if one is None or unseen is None:
        return one or unseen
    return _stricter(one, unseen) if one.setting.stricter or isinstance(one.value, ClassRule) else one


def _stricter(own: GivenSetting, theirs: GivenSetting) -> GivenSetting:
    """What both say together of a setting that protects."""
    if isinstance(own.value, ClassRule):
        if stricter_action(own.value.action, theirs.value.action) == own.value.action:
            return own
        # The nearer one's word, made stricter: with its rank no role from farther away says something milder.
        return theirs._replace(value=theirs.value._replace(rank=own.value.rank))
    assert own.setting.stricter is not None
    value = own.setting.stricter(own.value, theirs.value)
    if value == ():
        raise UsageError(f"{own.at}: {own.key} has nothing in common with {theirs.at}", "nothing could run")
    return own._replace(value=value) if value == own.value else theirs._replace(value=value)


def _ranked(one: GivenSetting, rank: int) -> GivenSetting:
    """With where it comes from in the rules themselves: a line of another policy.yaml is not to be taken for one of the
    project's."""
    prefix = "" if rank == PROJECT else f"{RANKS[rank]} "
    if isinstance(one.value, ClassRule):
        return one._replace(value=one.value._replace(rank=rank, source=prefix + one.value.source))
    if not one.setting.adds or not hasattr(one.value[0], "source"):
        return one
    rule = one.value[0]
    if isinstance(rule, CommandRule):
        if rule.source.startswith("rules.yaml:"):
            prefix = ""
        floor = rank == PROJECT and rule.action == "require_approval"
        return one._replace(value=(rule._replace(rank=rank, floor=floor, source=prefix + rule.source),))
    if rule.source.startswith("preset "):
        return one
    return one._replace(value=(rule._replace(source=prefix + rule.source),))


# --- reading ---


def _read_user(config: bytes, included: list[bytes]) -> list[GivenSetting]:
    """It may be a symbolic link: people keep such files together elsewhere."""
    path = config + b"/" + POLICY
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        if os.path.islink(path):  # it may hold denials: that it is not there yet is not the same as none
            raise UsageError(
                f"{show(path)} is a symbolic link to a file that is not there", "make the file, or remove the link"
            ) from error
        return []
    except OSError as error:
        raise UsageError(f"{show(path)}: {error.strerror}") from error
    data = read_open(descriptor, show(path))
    return parse(data, show(path), _folder(config, included, lambda name: _read_beside(config, name, own=True)))


def _links(path: bytes) -> list[bytes]:
    """Where a link leads, link by link. Each as it is written, so that who looks at it sees, too, if one of the
    directories on the way has become another."""
    found: list[bytes] = []
    while len(found) < _LINKS and os.path.islink(path):
        path = os.path.join(os.path.dirname(path), os.readlink(path))
        found.append(path)
    return found


def read_project(project: bytes, included: list[bytes] | None = None) -> list[GivenSetting]:
    """What the project says itself."""
    directory = project + b"/.mudroom"
    data = _read_beside(directory, POLICY)
    if data is None:
        return []
    folder = _folder(directory, included if included is not None else [], lambda name: _read_beside(directory, name))
    return parse(data, show(directory + b"/" + POLICY), folder)


def _read_local(project: bytes, included: list[bytes]) -> list[GivenSetting]:
    if not os.path.isdir(project + b"/.mudroom"):
        return []
    with Local(project) as local:
        data, rules = local.read(POLICY), local.read(RULES)
        folder = _folder(project + b"/.mudroom/local", included, local.read)
        found = parse(data, local.shown(POLICY), folder) if data is not None else []
        return found + (parse_rules(rules, local.shown(RULES)) if rules is not None else [])


def _folder(directory: bytes, included: list[bytes], read: Callable[[bytes], bytes | None]) -> PolicyFolder:
    """One that remembers what was included."""

    def remembering(name: bytes) -> bytes | None:
        included.append(directory + b"/" + name)
        return read(name)

    return PolicyFolder(remembering)


def _read_beside(directory: bytes, name: bytes, *, own: bool = False) -> bytes | None:
    """A file of a directory that is none of ours; not through symbolic links. None: it is not there."""
    shown = show(directory + b"/" + name)
    try:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        above = os.open(directory, flags if own else flags | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        if not os.path.islink(directory):
            if isinstance(error, NotADirectoryError):
                return None
            raise UsageError(f"{show(directory)}: {error.strerror}") from error
        raise UsageError(f"{show(directory)} is a symbolic link", _ELSEWHERE) from error
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=above)
    except FileNotFoundError:
        return None
    except OSError as error:
        if os.path.islink(directory + b"/" + name):
            raise UsageError(f"{shown} is a symbolic link", _ELSEWHERE) from error
        raise UsageError(f"{shown}: {error.strerror}") from error
    finally:
        os.close(above)
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(f"{shown}: Is a directory")
    return read_open(descriptor, shown, own=own)


_LINKS = 40
"""No path leads through more (path_resolution(7))."""
_ELSEWHERE = "a policy is read from the directory itself"
