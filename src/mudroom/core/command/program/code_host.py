"""Calls to a code host's API with the user's account: ``gh api``, ``glab api``, ``hub api``.

A call without fields is a GET and a call with fields is a POST, unless an option names the method (gh-api(1)). Only GET
and HEAD read; any other method acts with the account.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.locations import CommandContext, CommandFinding
from mudroom.core.command.table_rule import INFORMS, REACH, READ, Classes, names
from mudroom.core.command.word import Word

_ACTS: Classes = ("networked", "host_escape_risk")
_ACTING = "changes a code host with an account"
_METHODS = names("-X --method")
_FIELDS = names("-f --raw-field -F --field --input")
_TAKING = _METHODS | _FIELDS | names("-H --header -q --jq -t --template -p --preview --cache --hostname --output")
_FLAGS = names("-i --include --paginate --silent --slurp --verbose --help")
_ACTING_VERBS = names(
    """create update edit close reopen merge delete remove rm archive transfer fork upload run retry cancel trigger
    approve revoke note comment set add login rebase publish push pull-request sync rename subscribe"""
)


def judge_api(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    """Judge ``api ENDPOINT …``; the first word is ``api``."""
    methods, has_fields, is_known = list[Word](), False, True
    at = 1
    while at < len(words):
        word, at = words[at], at + 1
        if not word.may_be_option or (word.literal and word.text == b"-"):
            continue
        if word.literal and word.text == b"--":
            break
        name, value = _option(word) if word.literal else (b"", b"")
        is_known = is_known and bool(name)
        given = Word(value)
        if name in _TAKING and not value:
            given, at = words[at] if at < len(words) else given, at + 1
        methods += [given] if name in _METHODS else []
        has_fields = has_fields or name in _FIELDS
    reads = all(word.literal and word.text.upper() in (b"GET", b"HEAD") for word in methods)
    if not reads or (has_fields and not methods):
        return CommandFinding(_ACTS, _ACTING)
    if not is_known:
        return CommandFinding(("networked", "unknown"), "an option that is not known, or not before it runs")
    return CommandFinding(REACH, "asks the code host")


def _option(word: Word) -> tuple[bytes, bytes]:
    """Return the option that takes a value, or else the last one, and its attached value. Both are empty if any option
    is unknown."""
    text = word.text
    if text.startswith(b"--"):
        name, _sign, value = text.partition(b"=")
        return (name, value) if name in _TAKING or name in _FLAGS else (b"", b"")
    name = b""
    for at in range(1, len(text)):
        name = b"-" + text[at : at + 1]
        if name in _TAKING:
            return name, text[at + 1 :].removeprefix(b"=")
        if name not in _FLAGS:
            return b"", b""
    return name, b""


def judge_client(words: Sequence[Word], context: CommandContext) -> CommandFinding:
    """Judge ``glab`` and ``hub``, whose other subcommands are in no table."""
    if len(words) > 1 and all(word.literal and word.text in INFORMS for word in words[1:]):
        return CommandFinding(READ, "prints its version or help")
    texts = [word.text if word.literal else b"" for word in words]
    if b"api" in texts[1:]:
        return judge_api(words[texts.index(b"api", 1) :], context)
    if not _ACTING_VERBS.isdisjoint(texts[1:4]):
        return CommandFinding(_ACTS, _ACTING)
    return CommandFinding(("networked", "unknown"), "acts with an account")
