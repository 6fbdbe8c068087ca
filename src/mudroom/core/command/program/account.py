"""Programs that act with an account at a remote service, and their subcommands that only work on local files.

Only the listed subcommands with the listed options are local. Everything else acts with an account.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.locations import CommandContext, CommandFinding, names_credentials, write_classes
from mudroom.core.command.table_rule import (
    CHANGE,
    INFORMS,
    REACH,
    READ,
    UNSURE,
    Classes,
    names,
    operands,
    tidy,
)
from mudroom.core.command.word import Word, program_name
from mudroom.typing import NamedTuple

_ACTS: Classes = ("networked", "host_escape_risk")
_REASON = "acts with an account of a remote service"


class _Local(NamedTuple):
    classes: Classes
    reason: str
    takes: frozenset[bytes] = frozenset()
    """Options with a value."""
    flags: frozenset[bytes] = frozenset()
    required: bytes = b""
    """A flag without which the subcommand asks a server."""


_VALUES = names(
    "-f --values --set --set-string --set-file --set-json --set-literal -n --namespace --version -s --show-only"
    " --name-template -a --api-versions --kube-version"
)
_RENDERING = names("--include-crds --no-hooks --skip-tests --debug -g --generate-name --is-upgrade")
_TEMPLATE = _Local(REACH, "renders templates, and may fetch a chart", _VALUES, _RENDERING)
_LINT = _Local(READ, "checks a chart", _VALUES, names("--strict --quiet --with-subcharts --debug"))
_KUSTOMIZE = _Local(REACH, "renders files, and may fetch a base")
_FORMATS = _Local(
    CHANGE,
    "rewrites files",
    flags=names(
        "-check -diff -recursive -list=true -list=false -write=false -write=true -no-color --check --diff --recursive"
    ),
)
_VALIDATES = _Local(UNSURE, "runs the project's providers", flags=names("-json -no-color --json --no-color"))
_VERSION = _Local(READ, "prints its version", flags=names("--short -json --json -o=json"))
_CLIENT = _VERSION._replace(flags=_VERSION.flags | {b"--client"}, required=b"--client")
_OF_TERRAFORM = {b"fmt": _FORMATS, b"validate": _VALIDATES, b"version": _VERSION}
_SUBCOMMANDS: dict[bytes, dict[bytes, _Local]] = {
    b"helm": {b"template": _TEMPLATE, b"lint": _LINT, **dict.fromkeys(names("version env completion"), _VERSION)},
    b"kubectl": {b"kustomize": _KUSTOMIZE, b"version": _CLIENT, b"completion": _VERSION},
    b"kustomize": {b"build": _KUSTOMIZE, b"version": _VERSION},
    b"terraform": _OF_TERRAFORM,
    b"tofu": _OF_TERRAFORM,
}
"""Local subcommands by program."""


def judge(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    """Judge a program in ``_SUBCOMMANDS``."""
    if len(words) > 1 and all(word.literal and word.text in INFORMS for word in words[1:]):
        return CommandFinding(READ, "prints its version or help")
    subcommands = _SUBCOMMANDS[program_name(words[0].text)]
    local = subcommands.get(words[1].text) if len(words) > 1 and words[1].literal else None
    if local is None or not _is_local(words[2:], local):
        return CommandFinding(_ACTS, _REASON)
    classes = set(local.classes)
    if local.classes == CHANGE:
        classes |= set(write_classes(operands(words[2:]), context)[0])
    if any(names_credentials(word, context) for word in words[2:]):
        return CommandFinding(tidy({*classes, "host_escape_risk"}), f"{local.reason}, names a credential file")
    return CommandFinding(tidy(classes), local.reason)


def _is_local(words: Sequence[Word], local: _Local) -> bool:
    """Return whether all options are listed, and no word is an address with a plugin's scheme."""
    is_value, is_required = False, not local.required
    for word in words:
        if b"://" in word.text and not word.text.startswith((b"https://", b"oci://")):
            return False
        if is_value:
            is_value = False
            continue
        if not word.may_be_option:
            continue
        head, sign, _value = word.start.partition(b"=")
        is_required = is_required or word.text == local.required
        if (word.literal and word.text in local.flags) or (sign and head in local.takes):
            continue
        if not (word.literal and word.text in local.takes):
            return False
        is_value = True
    return is_required
