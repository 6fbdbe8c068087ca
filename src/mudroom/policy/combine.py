"""Combine a project's policy files: find them, merge them, and drop untrusted parts.

The layers are: the built-in defaults; the machine's ``/etc/mudroom/policy.yaml``, of root; the project's
``.mudroom/policy.yaml``, written by the project's authors; the user's own ``policy.yaml`` for all projects;
``.mudroom/local/policy.yaml``, and the answers in ``rules.yaml`` (``local_directory.py``), the user's for this project
on this machine.

Rules of this file:

1. Lists add up. Among rules, a denial wins (``core/command/policy.py``, ``core/network/host_rules.py``).
2. The nearer of the user's two files wins. Between the user and the project, a setting that protects takes the stricter
   value (``SettingRow.stricter``); any other setting takes the value that is most specific to the project: local,
   project, user. For an agent's role and the verify command the user's value wins, because another could be milder.
3. In a file that lies in the project, items that loosen apply only if the user has trusted them, or has been asked
   about them by mudroom (``policy/trust.py``).
4. No other file loosens what the machine's sets: the stricter value counts, and its commands are decided by it alone,
   too. Where nothing is stricter, an agent's role and the verify command are the machine's.
5. A file that cannot be read or parsed is an error; it is never treated as missing.
"""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable, Iterable

from mudroom.core.command.policy import BY_CLASS, RANKS, ClassRule, CommandPolicy, CommandRule
from mudroom.core.network.host_entry import expand
from mudroom.core.network.host_pattern import overlap
from mudroom.core.settings import LeftOut, Loaded, Settings
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.policy.command_answers import NAME as RULES
from mudroom.policy.command_answers import parse as parse_rules
from mudroom.policy.local_directory import LocalDirectory, read_answers, read_open, require_of_root
from mudroom.policy.parse import ROLE, GivenSetting, PolicyFolder, parse, settings_from
from mudroom.policy.setting_row import stricter_action
from mudroom.policy.trust import TrustJudgement, describe, judge, record_path, roles_in
from mudroom.stage import disk
from mudroom.stage.private_directory import answer_files

PROJECT, USER, LOCAL = (RANKS.index(name) for name in ("project", "user", "local"))
UNSEEN = -1
"""Key of the layer of items in ``.mudroom/local`` that this machine's user has not seen."""
MACHINE = -2
"""Key of the layer of the machine's file. Its rules have the project's rank."""
POLICY = b"policy.yaml"


def load(project: bytes, config: bytes, state: bytes, machine: bytes, *, trusts_all: bool) -> Loaded:
    """Return the settings. ``config``: the user's own policy directory. ``machine``: the machine's; empty: none.
    ``trusts_all``: the caller trusts any project. Raise UsageError naming file, line and key."""
    files = list(watched_files(project, config, state, machine))
    layers = read(project, config, state, machine, files)
    judgement = judge(project, state, project_items(layers), roles_of(layers), trusts_all=trusts_all)
    given = merge(believed(layers, judgement))
    left_out = tuple(LeftOut(describe(item), item.at) for item in judgement.left_out)
    settings = _with_machine(settings_from(given, judgement.left_out), layers)
    return Loaded(settings, left_out, judgement.why, tuple(given), tuple(files))


def settings_of(layers: dict[int, list[GivenSetting]]) -> Settings:
    """Return the settings of layers that all apply."""
    return _with_machine(settings_from(merge(layers)), layers)


def _with_machine(settings: Settings, layers: dict[int, list[GivenSetting]]) -> Settings:
    if not layers.get(MACHINE):
        return settings
    return settings._replace(commands=settings.commands._replace(machine=_decides_alone(layers[MACHINE])))


def _decides_alone(given: Iterable[GivenSetting]) -> CommandPolicy | None:
    """Return the machine's rules about commands as a policy of their own, in which what they do not name is allowed;
    None if they name nothing."""
    commands = settings_from(given).commands
    free = tuple(ClassRule(name, "allow", rank=0) for name in BY_CLASS)
    return commands._replace(by_class=(*free, *commands.by_class)) if commands != CommandPolicy() else None


def believed(layers: dict[int, list[GivenSetting]], judgement: TrustJudgement) -> dict[int, list[GivenSetting]]:
    """Return the layers with the items that apply."""
    return {
        MACHINE: layers.get(MACHINE, []),
        USER: layers[USER],
        PROJECT: [item for item in judgement.given if not item.local],
        UNSEEN: list(judgement.unseen),
        LOCAL: [item for item in judgement.given if item.local],
    }


def project_items(layers: dict[int, list[GivenSetting]]) -> list[GivenSetting]:
    """Return the items from files in the project's directory, which may have come with it. That includes the local
    files: git can put a file into ``.mudroom/local`` as into any other directory, and overwrites files that it
    ignores."""
    return [*layers[PROJECT], *layers[LOCAL]]


def read(
    project: bytes, config: bytes, state: bytes, machine: bytes, files: list[bytes] | None = None
) -> dict[int, list[GivenSetting]]:
    """Return each layer's items. ``files`` collects included files' names."""
    included: list[bytes] = [] if files is None else files
    layers = {
        MACHINE: _read_machine(machine, included) if machine else [],
        USER: _read_user(config, included),
        PROJECT: read_project(project, included),
        LOCAL: _read_local(project, state, included),
    }
    return {
        rank: [_with_rank(item._replace(local=rank == LOCAL), rank) for item in given] for rank, given in layers.items()
    }


def watched_files(project: bytes, config: bytes, state: bytes, machine: bytes) -> Iterable[bytes]:
    """Yield the files whose change may change the settings, except included files."""
    if machine:
        yield machine
        yield machine + b"/" + POLICY
        yield from _links(machine + b"/" + POLICY)
    yield project + b"/.mudroom"
    yield project + b"/.mudroom/" + POLICY
    yield config + b"/" + POLICY
    yield from _links(config + b"/" + POLICY)
    yield project + b"/.mudroom/local"
    yield project + b"/.mudroom/local/" + POLICY
    yield from answer_files(project, state, RULES)
    yield record_path(state, project)


def read_single(path: bytes) -> list[GivenSetting]:
    """Read one file by its path, with its includes, as if it were the project's policy."""
    directory, name = os.path.split(path)
    data = read_beside(directory or b".", name)
    if data is None:
        raise UsageError(f"{show(path)}: No such file or directory")
    given = parse(data, show(path), PolicyFolder(lambda beside: read_beside(directory, beside)))
    return [_with_rank(item, PROJECT) for item in given]


def roles_of(layers: dict[int, list[GivenSetting]]) -> frozenset[str]:
    """Return the roles that the user's own file, or the machine's, defines or restricts."""
    return roles_in([*layers.get(MACHINE, ()), *layers[USER]])


def merge(layers: dict[int, list[GivenSetting]]) -> list[GivenSetting]:
    """Merge the layers, lists item by item, in layer order. Raise UsageError for protections that exclude each
    other."""
    _require_inspected(layers)
    lists: list[GivenSetting] = []
    single: dict[str, dict[int, GivenSetting]] = {}
    for rank in (MACHINE, PROJECT, UNSEEN, USER, LOCAL):
        for item in layers.get(rank, ()):
            if item.setting.adds:
                lists.append(item)
            else:
                single.setdefault(_identity(item), {})[rank] = item
    return [*map(_merge_item, single.values()), *lists]


def _identity(item: GivenSetting) -> str:
    """Return the key under which items are merged: an alias is the same setting as the key that replaces it."""
    return item.setting.alias or item.key


def _require_inspected(layers: dict[int, list[GivenSetting]]) -> None:
    """Raise UsageError if another file excludes a host from inspection that the machine's file inspects or holds."""
    inspected = [item for item in layers.get(MACHINE, ()) if item.key in ("network.inspect", "network.hold")]
    excluded = [
        item
        for rank, given in layers.items()
        for item in given
        if inspected and rank != MACHINE and item.key == "network.never_inspect"
    ]
    for item, other in itertools.product(excluded, inspected):
        for rule, needed in itertools.product(expand(item.value), expand(other.value)):
            if overlap(rule.pattern, needed.pattern):
                raise UsageError(f"{item.at}: {item.key}: {rule.pattern} is inspected: {other.at}", "remove the line")


def _merge_item(by_rank: dict[int, GivenSetting]) -> GivenSetting:
    machine = by_rank.get(MACHINE)
    if machine is None:
        return _merge_others(by_rank)
    others = {rank: item for rank, item in by_rank.items() if rank != MACHINE}
    if not others or machine.setting is ROLE or machine.setting.own_first:
        return machine
    item = _merge_others(others)
    return _stricter(item, machine) if machine.setting.stricter or isinstance(machine.value, ClassRule) else item


def _merge_others(by_rank: dict[int, GivenSetting]) -> GivenSetting:
    nearer = by_rank.get(LOCAL, by_rank.get(USER))
    project_item = _merge_project(by_rank.get(PROJECT), by_rank.get(UNSEEN))
    if nearer is None or project_item is None:
        only = nearer or project_item
        assert only is not None
        return only
    if nearer.setting.stricter is None and not isinstance(nearer.value, ClassRule):
        return nearer if LOCAL in by_rank or nearer.setting is ROLE or nearer.setting.own_first else project_item
    return _stricter(nearer, project_item)


def _merge_project(item: GivenSetting | None, unseen: GivenSetting | None) -> GivenSetting | None:
    """Merge a project's item with a local item that the user has not seen. The latter does not replace the project's,
    which may have been trusted."""
    if item is None or unseen is None:
        return item or unseen
    return _stricter(item, unseen) if item.setting.stricter or isinstance(item.value, ClassRule) else item


def _stricter(nearer: GivenSetting, project_item: GivenSetting) -> GivenSetting:
    """Return the stricter item, for a setting that protects."""
    if isinstance(nearer.value, ClassRule):
        if stricter_action(nearer.value.action, project_item.value.action) == nearer.value.action:
            return nearer
        # The user's rank with the stricter value: at that rank, a role from a farther layer cannot loosen it.
        return project_item._replace(value=project_item.value._replace(rank=nearer.value.rank))
    assert nearer.setting.stricter is not None
    value = nearer.setting.stricter(nearer.value, project_item.value)
    if value == ():
        raise UsageError(f"{nearer.at}: {nearer.key} has nothing in common with {project_item.at}", "nothing could run")
    return nearer._replace(value=value) if value == nearer.value else project_item._replace(value=value)


def _with_rank(item: GivenSetting, layer: int) -> GivenSetting:
    """Return the item with its layer's rank, and with the layer named in the rule's source: a line of the user's
    policy.yaml must not look like the project's."""
    prefix = "" if layer == PROJECT else "machine " if layer == MACHINE else f"{RANKS[layer]} "
    rank = PROJECT if layer == MACHINE else layer
    if isinstance(item.value, ClassRule):
        return item._replace(value=item.value._replace(rank=rank, source=prefix + item.value.source))
    if not item.setting.adds or not hasattr(item.value[0], "source"):
        return item
    rule = item.value[0]
    if isinstance(rule, CommandRule):
        if rule.source.startswith("rules.yaml:"):
            prefix = ""
        floor = layer == PROJECT and rule.action == "require_approval"
        return item._replace(value=(rule._replace(rank=rank, floor=floor, source=prefix + rule.source),))
    return item._replace(value=(rule._replace(source=prefix + rule.source),))


# --- reading ---


def _read_user(config: bytes, included: list[bytes]) -> list[GivenSetting]:
    """Read the user's file, which may be a symbolic link: some users keep their configuration elsewhere."""
    path = config + b"/" + POLICY
    try:
        descriptor = disk.open_path(path, os.O_RDONLY | disk.O_NONBLOCK | disk.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError) as error:
        if os.path.islink(path):  # the file may hold denials, so a dangling link must not count as an empty file
            raise UsageError(
                f"{show(path)} is a symbolic link to a file that is not there", "make the file, or remove the link"
            ) from error
        return []
    except OSError as error:
        raise UsageError(f"{show(path)}: {error.strerror}") from error
    data = read_open(descriptor, show(path))
    return parse(data, show(path), _folder(config, included, lambda name: read_beside(config, name, own=True)))


def _read_machine(directory: bytes, included: list[bytes]) -> list[GivenSetting]:
    """Read the machine's file. It may be a link, as systems have them that are made of a description: only root can
    have made it in a directory of root's."""
    path = directory + b"/" + POLICY
    try:
        os.lstat(path)
    except FileNotFoundError:
        if os.path.isdir(directory) or not os.path.lexists(directory):
            return []
        raise UsageError(f"{show(directory)} leads nowhere", f"ls -l {show(directory)} shows it to root") from None
    except OSError as error:  # whether there is a policy cannot be seen
        raise UsageError(f"{show(path)}: {error.strerror}", f"ls -ld {show(directory)} shows it to root") from error

    def read(name: bytes) -> bytes | None:
        shown = show(directory + b"/" + name)
        try:
            descriptor = disk.open_path(directory + b"/" + name, os.O_RDONLY | disk.O_NONBLOCK | disk.O_CLOEXEC)
        except OSError as error:
            raise UsageError(f"{shown}: {error.strerror}", f"ls -l {shown} shows it to root") from error
        require_of_root(descriptor, shown)
        return read_open(descriptor, shown, own=False)

    with Descriptor(disk.open_path(directory, os.O_RDONLY | disk.O_DIRECTORY | disk.O_CLOEXEC)) as above:
        require_of_root(above, show(directory))
    data = read(POLICY)
    assert data is not None
    return parse(data, show(path), _folder(directory, included, read))


def _links(path: bytes) -> list[bytes]:
    """Return the targets in a chain of links. Each path is kept as written, so that a stamp also detects a replaced
    directory on the way."""
    targets: list[bytes] = []
    while len(targets) < _LINKS and os.path.islink(path):
        path = os.path.join(os.path.dirname(path), os.readlink(path))
        targets.append(path)
    return targets


def read_project(project: bytes, included: list[bytes] | None = None) -> list[GivenSetting]:
    """Return the items in the project's own policy file."""
    directory = project + b"/.mudroom"
    data = read_beside(directory, POLICY)
    if data is None:
        return []
    folder = _folder(directory, included if included is not None else [], lambda name: read_beside(directory, name))
    return parse(data, show(directory + b"/" + POLICY), folder)


def _read_local(project: bytes, state: bytes, included: list[bytes]) -> list[GivenSetting]:
    with LocalDirectory(project) as local:
        data = local.read(POLICY)
        folder = _folder(local.path, included, local.read)
        given = parse(data, local.shown(POLICY), folder) if data is not None else []
    return given + [item for rules, shown in read_answers(project, state, RULES) for item in parse_rules(rules, shown)]


def _folder(directory: bytes, included: list[bytes], read: Callable[[bytes], bytes | None]) -> PolicyFolder:
    """Return a folder that records included files' names."""

    def remembering(name: bytes) -> bytes | None:
        included.append(directory + b"/" + name)
        return read(name)

    return PolicyFolder(remembering)


def read_beside(directory: bytes, name: bytes, *, own: bool = False) -> bytes | None:
    """Read a file without following symbolic links, for a directory that the user may not own. Return None if it is
    missing."""
    shown = show(directory + b"/" + name)
    try:
        flags = os.O_RDONLY | disk.O_DIRECTORY | disk.O_CLOEXEC
        above = disk.open_path(directory, flags if own else flags | disk.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        if not os.path.islink(directory):
            if isinstance(error, NotADirectoryError):
                return None
            raise UsageError(f"{show(directory)}: {error.strerror}") from error
        raise UsageError(f"{show(directory)} is a symbolic link", _ELSEWHERE) from error
    try:
        descriptor = disk.open_at(above, name, os.O_RDONLY | disk.O_NOFOLLOW | disk.O_NONBLOCK | disk.O_CLOEXEC)
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
"""Maximum length of a chain of links; the kernel follows no more (path_resolution(7))."""
_ELSEWHERE = "replace the link by a real file or directory"
