"""The aims of a ``host_escape_risk`` command: its targets outside the project, as far as its words name them.

Rules of this file:
1. Aims explain a part completely, or there are none. A program in ``_ROWS`` has its row's aim. Any other program is
   judged again with a plain file name in place of each path outside the project: if it is still a risk, the risk has
   another reason, and the part has no aims.
2. Words that direct a program to a named server, account or machine (``docker -H``, ``kubectl --kubeconfig``) leave it
   without aims. A line that changes its shell's variables or functions in an unknown way has no aims except signals:
   ``HOME`` and ``DOCKER_HOST`` may be among them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mudroom.core.command.locations import CommandContext, CommandFinding
from mudroom.core.command.path_aim import aim_of, is_outside, with_aims
from mudroom.core.command.program.wrapper import WRAPPERS
from mudroom.core.command.protection import Protections, hold
from mudroom.core.command.shell.builtin import BUILTINS
from mudroom.core.command.table_rule import CHANGE, FETCH, REACH, READ, UNSURE, Classes, could_be, names
from mudroom.core.command.verdict import Aim, AimKind, Classification, CommandPart, join_parts
from mudroom.core.command.word import Word, program_name
from mudroom.core.text.regex import regex
from mudroom.typing import NamedTuple

Judge = Callable[[Sequence[Word], CommandContext], CommandFinding]
_MOST_PATHS = 8
_PLAIN = b"x"
"""A file name in the project, in place of a path outside."""
_REACHING: Classes = ("networked", "unknown")


class _Row(NamedTuple):
    aims: tuple[Aim, ...]
    otherwise: Classes
    """The classes if the aims are held."""
    verbs: frozenset[bytes] = frozenset()
    """Subcommands with these aims: a single word, or two joined by ``-``; empty: all but ``never``."""
    never: frozenset[bytes] = frozenset()
    """Subcommands that have other aims, too."""
    reads: frozenset[bytes] = frozenset()
    """Subcommands that only read."""
    writes: tuple[bytes, ...] = ()
    """Options that make these subcommands write a file."""
    alone: bool = False
    """Whether these subcommands only read if there is no further option."""
    reading: Classes = READ
    """The classes of ``reads`` if the aims are held."""
    leads: tuple[bytes, ...] = ()
    """Options that direct the program to a named server or account, even if a variable may hold one."""
    sends: tuple[bytes, ...] = ()
    """Options with this effect in some subcommands only."""
    takes: frozenset[bytes] = frozenset()
    """Options before the subcommand that take a value and do not matter. Any other leaves the part without aims."""
    has_verbs: bool = True


def _aims(*kinds: AimKind) -> tuple[Aim, ...]:
    return tuple(Aim(kind) for kind in kinds)


_SIGNALS = _Row(_aims("processes"), CHANGE, has_verbs=False)
_CONTAINERS = _Row(
    _aims("server"),
    UNSURE,
    never=names("login logout push scout trust context hub stack scp connection farm buildx-create"),
    reads=names(
        "ps images logs inspect version info history stats top port diff events compose-ps compose-logs"
        " compose-config compose-ls compose-images compose-top compose-version network-ls network-inspect volume-ls"
        " volume-inspect image-ls image-inspect image-history container-ls container-inspect container-logs system-df"
        " system-info"
    ),
    writes=(b"-o", b"--output", b"--lock-image-digests"),
    sends=(b"--push", b"--builder"),
)
_COMPOSE = _CONTAINERS._replace(
    takes=names("-f --file -p --project-name --profile --env-file --project-directory"),
    reads=names("ps logs config ls images top version port events"),
)
_CONTAINERD = _CONTAINERS._replace(reads=names("version"))
"""Its subcommands are groups: ``ctr images rm``."""
_SERVICES = _Row(
    _aims("server"),
    UNSURE,
    leads=(b"-H", b"--host", b"-M", b"--machine", b"--address", b"--peer", b"--bus"),
    has_verbs=False,
)
_UNITS = _SERVICES._replace(
    reads=names("status is-active is-enabled is-failed list-units list-unit-files list-timers list-sockets show cat")
)
_SCRIPTS = _SERVICES._replace(alone=True)
"""``service NAME status`` runs ``/etc/init.d/NAME``."""
_SESSIONS = _SERVICES._replace(reads=names("list-sessions list-users show-session show-user"))
_SETTINGS = _SERVICES._replace(reads=names("status show show-timezones"), alone=True)
_JOBS = _SERVICES._replace(reads=names("-l"), alone=True)
_BUSES = _SERVICES._replace(leads=(*_SERVICES.leads, b"-a"))
_KEYS = _Row((Aim("path", b"~/.gnupg"), Aim("path", b"~/.ssh"), *_aims("server")), UNSURE, has_verbs=False, alone=True)
_KEY_RING = _KEYS._replace(reads=names("--list-keys --list-secret-keys -k -K --verify"))
_KEY_FILES = _KEYS._replace(reads=names("-l -L"), takes=names("-f -E -v"))
_KUBERNETES_READS = names(
    "get describe logs top version explain api-resources api-versions cluster-info events config-view"
    " config-get-contexts config-current-context rollout-status rollout-history auth-can-i diff"
)
_KUBERNETES = _Row(
    _aims("account"),
    _REACHING,
    _KUBERNETES_READS,
    reads=_KUBERNETES_READS,
    reading=REACH,
    leads=(
        b"--kubeconfig", b"--token", b"-s", b"--server", b"--as", b"--as-group", b"--as-uid", b"--user", b"--cluster",
        b"--context", b"--username", b"--password", b"--client-key", b"--client-certificate", b"--plugin", b"--config",
    ),
    takes=names("-n --namespace"),
    writes=(b"--profile-output", b"--profile", b"--cache-dir", b"--output-directory", b"--log-file", b"--log-dir"),
)  # fmt: skip
_HELM_READS = names(
    "list ls status get history search show inspect lint env version repo-list repo-add repo-update"
    " dependency-update dependency-build dependency-list dep-update dep-build dep-list"
)
_HELM = _Row(
    _aims("account"),
    _REACHING,
    _HELM_READS | names("pull template"),
    reads=_HELM_READS,
    reading=FETCH,
    leads=(
        b"--kubeconfig", b"--kube-context", b"--kube-token", b"--kube-apiserver", b"--kube-as-user", b"--username",
        b"--password", b"--registry-config", b"--repository-config", b"--key-file", b"--cert-file",
    ),
    takes=names("-n --namespace"),
)  # fmt: skip
_TERRAFORM = _Row(
    _aims("account"),
    _REACHING,
    names("init plan validate show output providers graph get version state-list state-show workspace-list")
    | names("workspace-show"),
    leads=(b"-backend-config", b"-state", b"-chdir", b"-migrate-state", b"-force-copy"),
)
_AWS = _Row(
    _aims("account"),
    REACH,
    leads=(b"--endpoint-url", b"--cli-input-json", b"--cli-input-yaml"),
    takes=names("--profile --region --output"),
)
_AWS_READS = regex(rb"(?:ls|(?:list|describe|get|head|lookup|filter|search|help)(?:-[a-z0-9-]+)?)\Z")

_ROWS: dict[bytes, _Row] = {
    **dict.fromkeys(names("kill pkill killall skill killall5 fuser renice"), _SIGNALS),
    **dict.fromkeys(names("docker nerdctl podman buildah"), _CONTAINERS),
    **dict.fromkeys(names("ctr crictl"), _CONTAINERD),
    **dict.fromkeys(names("docker-compose podman-compose"), _COMPOSE),
    b"systemctl": _UNITS,
    b"service": _SCRIPTS,
    b"loginctl": _SESSIONS,
    **dict.fromkeys(names("timedatectl hostnamectl localectl"), _SETTINGS),
    **dict.fromkeys(names("crontab at"), _JOBS),
    **dict.fromkeys(names("batch xdg-open open"), _SERVICES),
    **dict.fromkeys(names("dbus-send busctl gdbus"), _BUSES),
    **dict.fromkeys(names("gpg gpg2"), _KEY_RING),
    **dict.fromkeys(names("ssh-keygen ssh-add"), _KEY_FILES),
    **dict.fromkeys(names("gpgconf ssh-agent"), _KEYS),
    **dict.fromkeys(names("kubectl oc"), _KUBERNETES),
    b"helm": _HELM,
    **dict.fromkeys(names("terraform tofu"), _TERRAFORM),
    b"aws": _AWS,
}
"""Rows by program."""


def add_aims(part: CommandPart, words: Sequence[Word], context: CommandContext, judge: Judge) -> CommandPart:
    """Return the part with its aims. ``judge`` classifies words."""
    row = _ROWS.get(program_name(words[0].text)) if words and words[0].literal else None
    if row is not None and (aims := _aims_of_row(words, row, context)):
        return part._replace(aims=aims, otherwise=_otherwise(words, row))
    if row is not None:
        return part
    return _judged_again(part, words, context, judge)


def at_level(classified: Classification, protections: Protections) -> tuple[Classification, bool]:
    """Return the classification with milder classes for parts whose aims are all held, and whether there are such
    parts. Their reasons name the protections."""
    is_shifting = any(_is_shifting(part) for part in classified.parts)
    parts = [_held(part, protections, is_shifting) for part in classified.parts]
    changed = any(new is not old for new, old in zip(parts, classified.parts, strict=True))
    return (join_parts(parts), True) if changed else (classified, False)


def _held(part: CommandPart, protections: Protections, is_shifting: bool) -> CommandPart:
    if not part.aims or (is_shifting and any(aim.kind != "processes" for aim in part.aims)):
        return part
    reasons = [hold(aim, protections) for aim in part.aims]
    if not all(reasons):
        return part
    reason = "; ".join(dict.fromkeys(reasons))  # the risk's own reason would read like a refusal
    return part._replace(classes=part.otherwise, reason=reason, aims=(), otherwise=())


def _is_shifting(part: CommandPart) -> bool:
    """Return whether the part may change shell variables, functions or its command's environment in an unknown way."""
    if "unknown" not in part.classes or part.aims:
        return False

    return not part.words or part.words[0] in BUILTINS or part.words[0] in WRAPPERS


# --- programs in the table ---


def _aims_of_row(words: Sequence[Word], row: _Row, context: CommandContext) -> tuple[Aim, ...]:
    if any(_leads(word.text, name) for word in words[1:] for name in (*row.leads, *row.sends)):
        return ()
    if row.leads and any(not word.literal and word.may_be_option for word in words[1:]):
        return ()
    if row.has_verbs and not _is_listed(words, row):
        return ()
    aims = list(row.aims)
    if row.aims[0].kind in ("account", "path"):
        for word in words[1:]:
            found = [aim_of(piece) for piece in _outside(word, context)]
            if None in found:
                return ()
            aims += [aim for aim in found if aim is not None]
    return tuple(dict.fromkeys(aims))


def _leads(word: bytes, name: bytes) -> bool:
    """Return whether the word may be this option. terraform accepts its options with two dashes, too."""
    is_long = len(name) > 2 and not name.startswith(b"--")
    return could_be(word[1:] if is_long and word.startswith(b"--") else word, name)


def _otherwise(words: Sequence[Word], row: _Row) -> Classes:
    """Return the words' classes if the aims are held."""
    verb, second, both = _verbs(words, row)
    if row is _AWS:
        return FETCH if second.startswith(b"get") else REACH  # ``s3api get-object … FILE`` writes the file
    if row is _SCRIPTS:
        return READ if second == b"status" and len(words) == 3 and b"/" not in verb else UNSURE
    if verb not in row.reads and both not in row.reads:
        return row.otherwise
    options = [word for word in words[1:] if word.may_be_option and word.text != verb]
    if row.alone and (len(words) > 2 if row is _JOBS else any(word.text not in row.takes for word in options)):
        return row.otherwise
    return row.otherwise if any(could_be(word.text, name) for word in options for name in row.writes) else row.reading


def _is_listed(words: Sequence[Word], row: _Row) -> bool:
    """Return whether the row covers this subcommand."""
    verb, second, both = _verbs(words, row)
    if row is _AWS:
        return verb == b"help" or (bool(verb) and _AWS_READS.match(second) is not None)
    if row.verbs:
        return verb in row.verbs or both in row.verbs
    if verb == b"compose" or row is _COMPOSE:
        return bool(verb) and row.never.isdisjoint(word.text for word in words[1:])  # compose -f x push
    return len(words) == 1 or (bool(verb) and row.never.isdisjoint((verb, second, both)))


def _verbs(words: Sequence[Word], row: _Row) -> tuple[bytes, bytes, bytes]:
    """Return the subcommand, the word after it, and both joined by ``-``. All are empty if they are unknown, or if
    options before the subcommand matter."""
    at = 1
    while at + 1 < len(words) and words[at].literal and words[at].text in row.takes and words[at + 1].literal:
        at += 2
    if at >= len(words) or not words[at].literal or (row.has_verbs and words[at].text.startswith(b"-")):
        return b"", b"", b""
    verb = words[at].text
    second = words[at + 1].text if at + 1 < len(words) and words[at + 1].literal else b""
    return verb, second, verb + b"-" + second


# --- paths ---


def _judged_again(part: CommandPart, words: Sequence[Word], context: CommandContext, judge: Judge) -> CommandPart:
    plain = list(words)
    found: dict[int, list[Aim]] = {}
    for at, word in enumerate(words[1:], 1):
        for piece in _outside(word, context):
            aim = aim_of(piece)
            if aim is None:
                return part
            found.setdefault(at, []).append(aim)
            plain[at] = Word(word.text[: len(word.text) - len(piece.text)] + _PLAIN)
    if not 0 < len(found) <= _MOST_PATHS or "host_escape_risk" in judge(plain, context).classes:
        return part
    for at in list(found):
        trial = [words[at] if index == at else word for index, word in enumerate(plain)]
        if "host_escape_risk" not in judge(trial, context).classes:
            plain = trial  # a path that is only read, such as /usr/share/x
            del found[at]
    aims = [aim for at in found for aim in found[at]]
    return with_aims(part, aims, judge(plain, context).classes)


def _outside(word: Word, context: CommandContext) -> list[Word]:
    """Return the word's ends that are paths outside the project (``--file=PATH``, ``@PATH``), or the word itself if it
    is such a path."""
    ends = []
    for sign in (b"=", b"@"):
        head, separator, tail = word.text.partition(sign)
        if separator and tail:
            ends.append(Word(tail, word.kind, max(0, word.fixed - len(head) - 1)))
    return [end for end in ends if is_outside(end, context)] or ([word] if is_outside(word, context) else [])
