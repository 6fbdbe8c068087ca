"""Secrets by their place in a command: options and arguments of programs, and the input piped into a program that reads
a password. Pure.

The tables are facts from the programs' manual pages. ``find_in_words`` works on one command's words, ``find_in_line``
on a shell line, in which it finds the simple commands. It is not a shell parser: its words may differ from the shell's,
and only the redaction depends on them.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from mudroom.core.text.regex import regex
from mudroom.core.text.table import read_table
from mudroom.typing import NamedTuple

_ASSIGNING = """
fly/secrets flyctl/secrets heroku/config:set railway/variables doppler/secrets vault/put vault/write vault/patch
kubectl/--from-literal op/item op/create op/edit supabase/secrets convex/env netlify/env:set dotenvx/set MUDROOM_VALUES/
"""
"""Programs whose ``NAME=VALUE`` arguments have a secret value, whatever the name. The last is a name that env(1) unsets
before the variables of a framework (``ext/orchestra/workspace.py``): they end with its command."""

_READING = """
sudo/-S sudo/--stdin docker/--password-stdin podman/--password-stdin nerdctl/--password-stdin buildah/--password-stdin
skopeo/--password-stdin helm/--password-stdin oras/--password-stdin crane/--password-stdin regctl/--pass-stdin
gh/--with-token gh/secret glab/--stdin passwd/--stdin chpasswd kinit cryptsetup gpg/--passphrase-fd
gpg2/--passphrase-fd wrangler/secret vercel/env fly/secrets vault/- smbpasswd/-s smbpasswd/-as htpasswd/-i pass/insert
secret-tool/store gcloud/secrets docker/secret podman/secret gocryptfs restic borg mount.cifs age/-p
"""
"""Programs that read a secret from their standard input, some only with a word that must be in the command."""

_FIRST = 8
"""Words in which a program is looked for: others may stand before it, as sudo, env and timeout do."""
_KEY = 16
"""Shortest key, in characters, that is given as a user without a password behind it."""
_TOKEN = regex(
    r"(?s)(?P<space>(?:[ \t\r]|\\\n)+)|(?P<end>\|[|&]?|&&?|;+|\n|[()])|(?P<here><<<)|(?P<redirect>\d?[<>]{1,2}&?)"
    r"|(?P<word>(?:[^\s'\"\\|&;()<>]|\\.|'[^']*'|\"(?:[^\"\\]|\\.)*\"|['\"\\])+)|(?P<other>.)"
)
"""Tokens in a shell line."""


class Secret(NamedTuple):
    """Secret characters in a word."""

    word: int
    start: int
    end: int


class _Option(NamedTuple):
    name: str
    way: str
    """The value's secret part, as in ``_SEPARATORS``; ``all``: the whole value."""
    apart: bool
    """Whether the value may be the next word."""
    attached: bool


@functools.cache
def _options() -> dict[str, list[tuple[str, tuple[_Option, ...]]]]:
    """Return the options by program, with the subcommand that they need."""
    table: dict[str, list[tuple[str, tuple[_Option, ...]]]] = {}
    for row in read_table("secret_options"):
        fields = row.split()
        options = tuple(_option(field) for field in fields if field.startswith(("-", "/")))
        for field in fields:
            if not field.startswith(("-", "/")):
                program, _slash, needed = field.partition("/")
                table.setdefault(program, []).append((needed, options))
    return table


def _option(field: str) -> _Option:
    name, _at, way = field.partition("@")
    bare = name.rstrip("+*")
    return _Option(bare, way or "all", not name.endswith("*"), name.endswith(("+", "*")))


@functools.cache
def _arguments() -> dict[str, list[tuple[str, int, str]]]:
    table: dict[str, list[tuple[str, int, str]]] = {}
    for row in read_table("secret_arguments"):
        place, field = row.split()
        program, _slash, keyword = place.partition("/")
        number, _at, way = field.partition("@")
        table.setdefault(program, []).append((keyword, int(number), way or "all"))
    return table


@functools.cache
def _pairs(text: str) -> dict[str, list[str]]:
    table: dict[str, list[str]] = {}
    for field in text.split():
        program, _slash, word = field.partition("/")
        table.setdefault(program, []).append(word)
    return table


@functools.cache
def programs() -> frozenset[str]:
    """Return all programs named in the tables."""
    return frozenset((*_options(), *_arguments(), *_pairs(_ASSIGNING), *_pairs(_READING)))


def find_in_words(words: Sequence[str]) -> list[Secret]:
    found: list[Secret] = []
    for index, word in enumerate(words[:_FIRST]):
        program = _program(word)
        if program in programs():
            rest = words[index + 1 :]
            secrets = (*_of_options(program, rest), *_of_arguments(program, rest), *_assigned(program, rest))
            found += [secret._replace(word=secret.word + index + 1) for secret in secrets]
    return found


def _program(word: str) -> str:
    """Return the program that a word names, by its path or as an option's value: ``ProxyCommand=curl``."""
    return word.rpartition("/")[2].rpartition("=")[2]


def _of_options(program: str, words: Sequence[str]) -> Iterator[Secret]:
    for needed, options in _options().get(program, ()):
        if needed and needed not in words:
            continue
        for index, word in enumerate(words):
            for option in options:
                if option.apart and word == option.name and index + 1 < len(words):
                    yield from _part(index + 1, words[index + 1], 0, option.way)
                elif word.startswith(option.name + "="):
                    yield from _part(index, word, len(option.name) + 1, option.way)
                elif option.attached and word.startswith(option.name) and len(word) > len(option.name):
                    yield from _part(index, word, len(option.name), option.way)


def _of_arguments(program: str, words: Sequence[str]) -> Iterator[Secret]:
    for keyword, number, way in _arguments().get(program, ()):
        if keyword and keyword not in words:
            continue
        start = words.index(keyword) + 1 if keyword and number > 0 else 0
        plain = [index for index in range(start, len(words)) if not words[index].startswith("-")]
        if len(plain) >= max(number, 2 if number < 0 else 1):
            index = plain[number - 1 if number > 0 else number]
            if not words[index].startswith("$"):
                yield from _part(index, words[index], 0, way)


def _assigned(program: str, words: Sequence[str]) -> Iterator[Secret]:
    wanted = _pairs(_ASSIGNING).get(program)
    if wanted is None or not any(word.partition("=")[0] in wanted for word in ("", *words)):
        return
    for index, word in enumerate(words):
        name, sign, value = word.removeprefix("--from-literal=").partition("=")
        if not sign and "" in wanted:
            return
        if sign and value and not name.startswith("-") and not value.startswith(("$", "@")):
            yield Secret(index, len(word) - len(value), len(word))


_SEPARATORS = {"user": ":", "cookie": "=", "percent": "%", "comma": ",", "slash": "/"}


def _part(index: int, word: str, start: int, way: str) -> Iterator[Secret]:
    """Yield the secret part in a value that begins at ``start``."""
    end = len(word)
    quote = word[start : start + 1]
    if quote in ("'", '"') and end - start > 1 and word[-1] == quote:  # a word from a line, as written
        start, end = start + 1, end - 1
    elif word[:1] in ("'", '"') and end > 1 and word[-1] == word[0] and start:
        end -= 1
    separator = _SEPARATORS.get(way, "")
    if separator:
        at = word.find(separator, start, end)
        if way == "user" and at == end - 1 and at - start >= _KEY:
            end = at  # ``curl -u KEY:``
        else:
            start = at + 1 if at >= 0 else end
    value = word[start:end]
    if way == "slash" and "@" in value:
        end = start + value.rindex("@")
    if start < end and not value.startswith(("$", "`")) and (start or not value.startswith("-")):
        yield Secret(index, start, end)


# --- a shell line ---


class _Word(NamedTuple):
    text: str
    start: int
    is_input: bool
    """Whether it is a here string."""


class LineSecret(NamedTuple):
    """Characters of a line that are secret."""

    start: int
    end: int
    is_input: bool
    """Whether a program reads it: a shell behind ``sudo -S`` would run it."""
    is_login: bool = False
    """Whether the command that reads it is a login, which runs nothing that it reads."""


def find_in_line(line: str, depth: int = 2) -> list[LineSecret]:
    """Return the secrets in a shell line. ``depth``: nesting depth for lines in quotes, as behind ``sh -c``."""
    found: list[LineSecret] = []
    before: list[_Word] = []
    for words, piped in _commands(line):
        texts = [word.text for word in words]
        for word in words if depth else ():
            first, last = _quoted(word.text)
            if " " in word.text[first:last]:
                start = word.start + first
                nested = find_in_line(word.text[first:last], depth - 1)
                found += [row._replace(start=start + row.start, end=start + row.end) for row in nested]
        for secret in find_in_words([text if index else _bare(text) for index, text in enumerate(texts)]):
            start = words[secret.word].start
            found.append(LineSecret(start + secret.start, start + secret.end, False))
        bare = [_bare(text) for text in texts]
        reader = _reader(bare)
        if reader:
            is_login = _is_login(bare, line)
            inputs = [word for word in words if word.is_input]
            for word in inputs or (_written(before) if piped else []):
                for secret in _part(0, word.text, 0, "user" if reader == "chpasswd" else "all"):
                    found.append(LineSecret(word.start + secret.start, word.start + secret.end, True, is_login))
        before = words
    return found


def _quoted(word: str) -> tuple[int, int]:
    """Return the span inside a word's quotes, or inside those around an assigned value (``GIT_SSH_COMMAND='…'``); an
    empty span if there are none. Nested quotes are stripped with them: ``'"'"'…'"'"'``."""
    for begin in (0, word.find("=") + 1):
        start, end = begin, len(word)
        while end - start > 1 and word[start] in "'\"" and word[end - 1] in "'\"":
            start, end = start + 1, end - 1
        if start > begin:
            return start, end
    return 0, 0


def _bare(word: str) -> str:
    return word[1:-1] if len(word) > 1 and word[0] in "'\"" and word[-1] == word[0] else word


def _commands(line: str) -> Iterator[tuple[list[_Word], bool]]:
    """Yield each simple command's words, and whether it reads the previous command's output."""
    words: list[_Word] = []
    piped = is_input = False
    for match in _TOKEN.finditer(line):
        if match["word"] is not None:
            words.append(_Word(match["word"], match.start(), is_input))
            is_input = False
        elif match["here"] is not None:
            is_input = True
        elif match["end"] is not None:
            if words:
                yield words, piped
            piped = match["end"] in ("|", "|&") and bool(words)
            words, is_input = [], False
    if words:
        yield words, piped


def _reader(words: Sequence[str]) -> str:
    """Return a command's program if it reads a secret from its standard input; empty if it reads none."""
    table = _pairs(_READING)
    for index, word in enumerate(words[:_FIRST]):
        program = _program(word)
        for needed in table.get(program, ()):
            if not needed or needed in words or (needed == "-S" and _has_letter(words[index + 1 :], "S")):
                return program
    return ""


_LOGINS = (("login",), ("auth", "login"), ("registry", "login"))
_REDEFINING = ("(", "alias", "function", "PATH", "BASH_ENV", "`", "enable", "hash ")
"""Texts in a line that may make a name run another program."""


def _is_login(words: Sequence[str], line: str) -> bool:
    """Return whether a command is a program's login; the program must be named without a directory."""
    is_login = any(tuple(words[1 : 1 + len(login)]) == login for login in _LOGINS)
    return is_login and words[0] in programs() and not any(part in line for part in _REDEFINING)


def _has_letter(words: Sequence[str], letter: str) -> bool:
    """Return whether a cluster of short options before the first argument contains a letter."""
    for word in words:
        if not word.startswith("-"):
            return False
        if letter in word and not word.startswith("--"):
            return True
    return False


def _written(words: Sequence[_Word]) -> list[_Word]:
    """Return the words that echo or printf writes."""
    if not words or _bare(words[0].text).rpartition("/")[2] not in ("echo", "printf"):
        return []
    plain = [word for word in words[1:] if not word.text.startswith("-")]
    is_format = words[0].text.endswith("printf") and len(plain) > 1
    return plain[is_format:]
