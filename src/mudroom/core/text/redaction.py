"""Redact secrets from text before it is written down. Pure.

A secret is recognised by its value (``known``), by the shape that its issuer publishes (``issued_token.py``), by its
place in a text (``secret_place.py``) or in a command (``command_secret.py``), or, in a weaker place, by being random
(``secret_word.py``). Only the value is hidden; the text around it stays, so that a reader still sees the command.

Each journalled command pays for the search. A place's pattern is tried only if the text contains a hint for it;
hundreds of token patterns only if the text has a long run with digits or capitals, by one look at each word. So
ordinary commands cost a few searches and compile no pattern. Every pattern takes time proportional to the text,
whatever the text is.

Redaction is incomplete: a password that looks like a word and is passed in a program's own way stays. Whole hashes,
UUIDs and paths are never hidden by their shape alone.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Mapping, Sequence

from mudroom.core.text.secret_place import HARMLESS, NAME_HINTS, NAMES, SHAPES, Shape
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import re

MARK = "[redacted]"
LONGEST = 32_768
"""Most characters that the journal keeps for one text."""
MOST = 1_000
"""Most entries that the journal keeps for one list."""
SHORTEST = 8
"""Characters. A shorter known value occurs in too many other words to be hidden everywhere."""


def _by_hints() -> tuple[tuple[tuple[str, ...], bool, tuple[Shape, ...]], ...]:
    """Return the shapes by their hints, and whether they need a long run, so that no hint is searched for twice."""
    keys = dict.fromkeys((shape.hints, shape.check == "random") for shape in SHAPES)
    return tuple(
        (hints, needed, tuple(shape for shape in SHAPES if (shape.hints, shape.check == "random") == (hints, needed)))
        for hints, needed in keys
    )


_SHAPES_BY_HINTS = _by_hints()


class Search(NamedTuple):
    """Candidates for a search in a text, found at a glance."""

    shapes: tuple[Shape, ...] = ()
    tokens: tuple[tuple[str, str], ...] = ()
    """Patterns for issued tokens, and how a match is checked."""
    commands: bool = False
    """Whether the text names a program that takes a secret in its own way."""


_KEPT = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz-._~"
_RUNS = bytes(byte if byte in _KEPT else 32 for byte in range(256))
_WIDE = bytes(byte if byte in _KEPT + b"+/=" else 32 for byte in range(256))
_PROGRAMS = frozenset({
    b"7z", b"7za", b"7zr", b"7zz", b"age", b"ansible", b"ansible-playbook", b"apksigner", b"astro", b"aws", b"az",
    b"MUDROOM_VALUES",
    b"bcp", b"borg", b"buildah", b"bw", b"bx", b"cargo", b"cf", b"chpasswd", b"clickhouse-client", b"conda",
    b"convex", b"cqlsh", b"crackmapexec", b"crane", b"cryptsetup", b"curl", b"cypher-shell", b"docker", b"doctl",
    b"doppler", b"dotenvx", b"dotnet", b"doveadm", b"etcdctl", b"expdp", b"fly", b"flyctl", b"gcloud", b"gh", b"git",
    b"gitlab-runner", b"glab", b"go-sqlcmd", b"gocryptfs", b"gpg", b"gpg2", b"groupadd", b"groupmod", b"helm",
    b"heroku", b"hg", b"htpasswd", b"http", b"https", b"ibmcloud", b"impdp", b"influx", b"ipmitool", b"isql",
    b"iwconfig", b"jarsigner", b"keydb-cli", b"keytool", b"kinit", b"kubectl", b"ldapadd", b"ldapcompare",
    b"ldapdelete", b"ldapmodify", b"ldappasswd", b"ldapsearch", b"ldapwhoami", b"lftp", b"mariadb", b"mariadb-admin",
    b"mariadb-dump", b"mariadb-import", b"mariadb-show", b"mitmdump", b"mitmproxy", b"mitmweb", b"mkpasswd",
    b"mongo", b"mongodump", b"mongoexport", b"mongoimport", b"mongorestore", b"mongosh", b"mosquitto_pub",
    b"mosquitto_rr", b"mosquitto_sub", b"mount.cifs", b"mqttx", b"mysql", b"mysqladmin", b"mysqldump",
    b"mysqlimport", b"mysqlsh", b"mysqlshow", b"mysqlslap", b"nats", b"ncftp", b"ncftpget", b"ncftpput",
    b"neo4j-admin", b"nerdctl", b"net", b"netlify", b"ngrok", b"nmcli", b"nuget", b"nxc", b"oc", b"op", b"openssl",
    b"oras", b"osql", b"pass", b"passwd", b"pdbedit", b"plink", b"pm2", b"podman", b"poetry", b"pscp", b"psftp",
    b"pulumi", b"putty", b"rabbitmqctl", b"railway", b"rancher", b"rar", b"rclone", b"rdesktop", b"redis-cli",
    b"regctl", b"restic", b"rman", b"rpcclient", b"secret-tool", b"security", b"sentry-cli", b"skopeo", b"smbclient",
    b"smbget", b"smbmap", b"smbpasswd", b"snmpbulkwalk", b"snmpget", b"snmpgetnext", b"snmpset", b"snmptable",
    b"snmpwalk", b"snyk", b"sqlcmd", b"sqlldr", b"sqlplus", b"ssh-keygen", b"sshpass", b"sudo", b"supabase", b"svn",
    b"tsql", b"twine", b"unrar", b"unzip", b"useradd", b"usermod", b"valkey-cli", b"vault", b"vercel", b"vncviewer",
    b"wandb", b"wget", b"wget2", b"wlfreerdp", b"wpa_passphrase", b"wrangler", b"xfreerdp", b"xfreerdp3", b"xh",
    b"xhs", b"xtightvncviewer", b"zip", b"zipcloak",
})  # fmt: skip
"""The programs in ``command_secret.py``, which is loaded only if a text names one."""
_PROGRAM_NAMES = bytes(byte if byte in _KEPT + b":@+" else 32 for byte in range(256))
_PLAIN = b"abcdefghijklmnopqrstuvwxyz-._~+/="
_HASHES, _HEXADECIMAL = (40, 64), b"0123456789abcdef"
_RUN = 16
"""Characters in a run that may be, or hold, an issued token."""


def _glance(text: str) -> Search:
    """Return the candidates for a search in a text. An ordinary command costs one translation and some searches
    here."""
    lowered, lines = text.lower(), text.encode("ascii", "replace")
    wide = _long_runs(lines, _WIDE)
    if wide and b"://" not in lines:  # an absolute path is one run then
        wide = [run for run in wide if not run.startswith((b"/", b"./", b"../", b"~"))]
    runs = wide and (_long_runs(lines, _RUNS) or wide)
    shapes: list[Shape] = []
    for hints, needed, rows in _SHAPES_BY_HINTS:
        if needed and not wide:
            continue
        for hint in hints:
            if hint in lowered:
                shapes += [shape for shape in rows if shape.needs in lowered]
                break
    tokens: Sequence[tuple[str, str]] = ()
    if runs:
        from mudroom.core.text.issued_token import patterns_in

        tokens = patterns_in(text, runs)
    if len(shapes) > 1:
        shapes.sort(key=SHAPES.index)
    return Search(tuple(shapes), tuple(tokens), _names_program(lines))


def _names_program(line: bytes) -> bool:
    return not _PROGRAMS.isdisjoint(line.translate(_PROGRAM_NAMES).split())


def _long_runs(text: bytes, kept: bytes) -> list[bytes]:
    """Return the long runs of kept characters that have a digit or a capital; whole hashes are left out."""
    return [
        run
        for run in text.translate(kept).split()
        if len(run) >= _RUN and run.translate(None, _PLAIN) and (len(run) not in _HASHES or run.strip(_HEXADECIMAL))
    ]


def redact(text: str, known: Collection[str] = (), search: Search | None = None, *, inert: bool = False) -> str:
    """Return the text without the secrets in it. ``known``: values that are hidden wherever they occur. ``search``: the
    glance at a text that contains this one. ``inert``: hide only values that no shell would act on, for people who
    decide about the text."""
    text = _without_known(text, known)
    if len(text) < SHORTEST:
        return text
    search = search or _glance(text)
    if search.commands and " " in text and _names_program(text.encode("ascii", "replace")):
        from mudroom.core.text.command_secret import find_in_line

        spans = []
        for start, end, is_input, is_login in sorted(set(find_in_line(text))):
            value = _plain(text[start:end], "")
            if (
                not inert
                or (is_login and _is_plain(value))
                or (is_inert(value) and (not is_input or any(map(str.isdecimal, value))))
            ):
                spans.append((start, end))
        text = _without_spans(text, spans)
    lowered = text.lower()
    for shape in search.shapes:
        # The hint may be in another text that belongs to the same event. An option's value is another word.
        if shape.needs in lowered and (shape.needs != "-" or lowered.split(None, 1)[1:]):
            text = _compiled(shape.pattern).sub(_hiding(shape.check, inert), text)
    for pattern, check in search.tokens:
        text = _compiled(pattern).sub(_hiding(check, inert, _is_plain), text)
    return text


def redact_reason(
    reason: str, known: Collection[str] = (), search: Search | None = None, *, inert: bool = False
) -> str:
    """Return a verdict's reason without secrets: ``COMMAND: clause``. The command ends at the colon, so both parts are
    redacted apart."""
    whole = _without_known(reason, known)
    at = whole.find(": ")
    while at >= 0:
        if _ends_command(whole[:at].rpartition(" ")[2]) and _begins_clause(whole[at + 2 : at + 40]):
            parts = (redact(part, known, search, inert=inert) for part in (whole[:at], whole[at + 2 :]))
            return ": ".join(parts)
        at = whole.find(": ", at + 2)
    return redact(whole, known, search, inert=inert)


def _ends_command(word: str) -> bool:
    """Return whether a word before a colon does not name a header or setting, whose value would follow."""
    if word.startswith("-") and "=" not in word and word.islower():
        return True
    return not any(hint in word.lower() for hint in (*NAME_HINTS, "auth", "cookie", "cred", "bearer"))


def _begins_clause(text: str) -> bool:
    """Return whether a text begins as mudroom's clauses do: a word in lower case and another word."""
    first, space, _rest = text.partition(" ")
    return bool(space) and first.replace("-", "").isalpha() and first.islower()


def _without_spans(text: str, spans: Sequence[tuple[int, int]]) -> str:
    """Return the text with these parts hidden, in their order; if parts overlap, the first."""
    pieces, after = [], 0
    for start, end in spans:
        if start >= after and MARK not in text[start:end]:
            pieces += [text[after:start], MARK]
            after = end
    return "".join((*pieces, text[after:]))


def _without_known(text: str, known: Collection[str]) -> str:
    present = [value for value in known if len(value) >= SHORTEST and value in text]
    for value in sorted(present, key=len, reverse=True):  # a value may be the beginning of another
        text = text.replace(value, MARK)
    return text


def redact_words(
    words: Sequence[str], known: Collection[str] = (), search: Search | None = None, *, inert: bool = False
) -> list[str]:
    """Return a command's words without the secrets in them; an option's value is the next word."""
    redacted = [redact(word, known, search, inert=inert) for word in words]
    if not redacted:
        return redacted
    search = search or _glance("\n".join(words))
    of_settings = _is_config_command(words)
    redacted[0] = _redact_assignment(words[0], redacted[0], inert=inert)
    for index in range(1, len(redacted)):
        before, word = words[index - 1], words[index]
        is_hidden = False
        if not word.startswith("-"):
            is_setting = of_settings and _compiled(rf"(?i).*{NAMES}\Z").match(before) is not None
            is_hidden = (is_setting or _is_secret_option(before, word)) and _is_value(word)
            is_hidden = is_hidden and (not inert or is_inert(word))
        if is_hidden:
            redacted[index] = MARK
        elif not _takes_line(before):
            redacted[index] = _redact_assignment(word, redacted[index], inert=inert)
    for shape in search.shapes:
        if shape.name in _ACROSS:
            _redact_across(shape, words, redacted, inert=inert)
    if search.commands:
        from mudroom.core.text.command_secret import find_in_words

        for secret in sorted(set(find_in_words(words)), reverse=True):
            word = words[secret.word]
            if not inert or is_inert(word[secret.start : secret.end]):
                redacted[secret.word] = word[: secret.start] + MARK + word[secret.end :]
    return redacted


_ACROSS = ("netrc", "weak option")
"""Shapes that may extend over several words in a command."""


def _redact_across(shape: Shape, words: Sequence[str], redacted: list[str], *, inert: bool) -> None:
    """Hide the words that are secret only together with the words before them."""
    line = " ".join(words)
    starts = dict(
        zip(itertools.accumulate((len(word) + 1 for word in words), initial=0), range(len(words)), strict=False)
    )
    for match in _compiled(shape.pattern).finditer(line):
        index = starts.get(match.start("secret"))
        if index is None or match["secret"] != words[index] or (inert and not is_inert(words[index])):
            continue
        if _is_secret(shape.check, words[index]):
            redacted[index] = MARK


def redact_argv(words: Sequence[bytes], known: Collection[str] = (), *, inert: bool = False) -> tuple[bytes, ...]:
    """Redact the words that a process is started with, as ``redact_words`` does."""
    texts = [word.decode("utf-8", "surrogateescape") for word in words]
    redacted = redact_words(texts, known, inert=inert)
    return tuple(word.encode("utf-8", "surrogateescape") for word in redacted)


def _takes_line(option: str) -> bool:
    """Return whether an option's value is a shell line or a program: ``-c``, ``-lc``, ``-e``."""
    return option[:1] == "-" and option[-1] in "ce" and not option[1:].strip("abcdefghijklmnopqrstuvwxyz")


def _redact_assignment(word: str, redacted: str, *, inert: bool) -> str:
    """Redact a word that is a single assignment, ``NAME=VALUE`` or ``--name=VALUE``: the whole value is secret."""
    name, sign, value = word.partition("=")
    if not sign or " " not in value or inert or len(name) > 100 or not any(hint in name.lower() for hint in NAME_HINTS):
        return redacted
    if not _compiled(rf"(?i)[\w./:@-]*{NAMES}\Z").match(name) or not _is_value(value) or value.startswith("="):
        return redacted
    return name + sign + MARK


def _is_config_command(words: Sequence[str]) -> bool:
    """Return whether the words are like ``npm config set NAME VALUE`` or ``aws configure set NAME VALUE``."""
    return any(first in ("config", "configure") and second == "set" for first, second in itertools.pairwise(words[:8]))


def redact_data(value: Any, known: Collection[str] = ()) -> Any:
    """Return JSON data with every text in it redacted; in a dict only the values. A list of texts is treated as a
    command's words. The argument is never modified."""
    texts: list[str] = []
    _gather(value, texts)
    every = "\n".join(texts)
    search = _glance(every)
    if not any(search) and not any(secret in every for secret in known):
        return value
    return _redacted(value, known, search)


def truncate(value: Any) -> Any:
    """Return JSON data with texts and lists cut to the lengths that the journal keeps; omitted parts are counted. A
    command may have a megabyte, and searching that for secrets takes seconds."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST else _cut(value)
    if isinstance(value, dict):
        return {key: truncate(item) for key, item in value.items()}
    if not isinstance(value, list | tuple):
        return value
    more = [f"[{len(value) - MOST:,} more]"] if len(value) > MOST else []
    return [truncate(item) for item in value[:MOST]] + more


def _cut(text: str) -> str:
    return f"{text[: LONGEST // 2]} [{len(text) - LONGEST:,} characters left out] {text[-LONGEST // 2 :]}"


def _gather(value: Any, texts: list[str]) -> None:
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, dict):
        for item in value.values():
            _gather(item, texts)
        texts.append(_address(value))
    elif isinstance(value, list | tuple):
        for item in value:
            _gather(item, texts)


def _address(value: dict[str, Any]) -> str:
    """Return a flow's address, joined from its members host and path; empty if the dict is not a flow. For some hosts
    the path is the secret."""
    host, path = value.get("host"), value.get("path")
    return host + path if isinstance(host, str) and isinstance(path, str) and path.startswith("/") else ""


def _redacted(value: Any, known: Collection[str], search: Search) -> Any:
    if isinstance(value, str):
        return redact(value, known, search)
    if isinstance(value, dict):
        redacted = {key: _of_member(key, item, known, search) for key, item in value.items()}
        address = _address(value)
        if address and redacted["path"] == value["path"]:
            shown = redact(address, known, search)
            if shown.startswith(value["host"]):
                redacted["path"] = shown[len(value["host"]) :]
        return redacted
    if not isinstance(value, list | tuple):
        return value
    if all(isinstance(item, str) for item in value):
        return redact_words(value, known, search)
    return [_redacted(item, known, search) for item in value]


def _of_member(key: Any, item: Any, known: Collection[str], search: Search) -> Any:
    if key == "reason" and isinstance(item, str):
        return redact_reason(item, known, search)
    return _redacted(item, known, search)


_BYTE_HINTS = tuple(hint.encode() for hint in NAME_HINTS)
_KEYS = (b"api", b"access", b"secret", b"account", b"auth", b"private", b"encryption", b"signing", b"storage")
_SECRET_ENDS = (
    *(b"password passwords passwd passphrase pwd pass token tokens secret secrets secret_key_base".split()),
    *(before + dash + key for before in _KEYS for dash in (b"", b"_", b"-") for key in (b"key", b"keys")),
    *(b"oauth2_bearer", b"oauth2-bearer", b"pswd", b"psk"),
)


def names_secret(name: bytes) -> bool:
    """Return whether a variable's name, in lower case, ends as ``NAMES`` says, without compiling that pattern: this is
    asked for each command in a session with a token in its environment."""
    if name.endswith(b"pw"):
        return not name[-3:-2].isalpha()
    return name.endswith(_SECRET_ENDS) and not name.endswith(b"oldpwd")


def secret_values(environ: Mapping[bytes, bytes]) -> set[str]:
    """Return the values of ``secret_variables``, since a shell inserts them into commands."""
    return set(secret_variables(environ).values())


def secret_variables(environ: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return the variables whose names say that they are secret. Paths and numbers are left out."""
    variables = {}
    names = b"\n".join(environ).lower()
    hints = [hint for hint in _BYTE_HINTS if hint in names]  # most environments have few of these words
    for name, value in environ.items() if hints else ():
        if not any(map(name.lower().__contains__, hints)):
            continue
        text = value.decode("utf-8", "surrogateescape")
        if len(text) < SHORTEST or text.startswith(("/", "~", "./")) or text.isdecimal() or not text.isprintable():
            continue
        if names_secret(name.lower()):
            variables[name.decode("utf-8", "surrogateescape")] = text
    return variables


def _is_secret_option(word: str, value: str) -> bool:
    if word.lower() == "bearer":
        return True
    if (
        not word.startswith("-")
        or "=" in word
        or len(word) > 60
        or not any(hint in word.lower() for hint in NAME_HINTS)
    ):
        return False
    pattern = rf"(?i)--?(?!no-)(?:[a-z0-9]+[_-]){{0,6}}{NAMES} "
    return _compiled(pattern).match(f"{word} {value[:9]}") is not None


def _is_value(word: str) -> bool:
    return _compiled(HARMLESS).match(word) is not None


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    import re

    return re.compile(pattern)


def _hiding(check: str, inert: bool, may_hide: Callable[[str], bool] | None = None) -> Callable[[re.Match[str]], str]:
    """Return the function that hides a match's secret, if it is one. ``may_hide``: returns whether a value may be
    hidden from people who decide about the text."""
    may_hide = may_hide or (_is_plain if check == "hash" else is_inert)

    def hidden(match: re.Match[str]) -> str:
        secret = match["secret"]
        if not _is_secret(check, secret) or (inert and not may_hide(_plain(secret, check))):
            return match[0]
        first, last = match.span("secret")
        start = match.start()
        return match[0][: first - start] + MARK + match[0][last - start :]

    return hidden


def _plain(secret: str, check: str) -> str:
    """Return a value without the quotes around it, if no part is outside them; a hash without its dollar signs."""
    if check == "hash":
        return secret.replace("$", "")
    return (
        secret[1:-1]
        if len(secret) > 1 and secret[0] in "'\"" and secret.find(secret[0], 1) == len(secret) - 1
        else secret
    )


def _is_secret(check: str, word: str) -> bool:
    if check == "random":
        from mudroom.core.text.secret_word import is_random

        return is_random(word)
    if check == "issued":
        from mudroom.core.text.issued_token import is_issued

        return is_issued(word)
    return check != "mixed" or any(map(str.isdecimal, word))


_INERT = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-.+=/:@%,~")
_LINE = 16
"""Fewest characters in a key's line, except the last line."""
_ACTING = ("/", ".", "~", "-", "@")
"""Beginnings of paths, options, and file names that stand for the file's content (``curl -F name=@file``)."""


def is_inert(secret: str) -> bool:
    """Return whether a value in a place for secrets can be hidden from people who decide about a command: it has no
    character from a shell's grammar, and does not read as a program, file, host or branch. The place alone proves
    little: ``PASS=reboot; $PASS`` runs the value, and ``token=@.env`` sends a file. If a key has several lines, each
    but the last must be random, as base64 is."""
    lines = _plain_lines(secret)
    if not lines:
        return False
    from mudroom.core.text.secret_word import holds_line, is_random, reads_as_name

    if holds_line("".join(lines)):
        return False  # ``TOKEN=…; echo $TOKEN | base64 -d | sh``
    *before, last = lines
    is_key = bool(before) and last.endswith("=")
    return all(len(line) >= _LINE and is_random(line) for line in before) and (is_key or not reads_as_name(last))


def _is_plain(secret: str) -> bool:
    """Return whether a value with an issuer's shape is a single line without a character from a shell's grammar. Such a
    value is not a word."""
    return len(_plain_lines(secret)) == 1


def _plain_lines(secret: str) -> list[str]:
    """Return a value's lines; none if it has a character from a shell's grammar or a line is a path or an option."""
    lines = secret.replace("\\n", "\n").strip("\n").split("\n")
    is_plain = all(_INERT.issuperset(line) and not line.startswith(_ACTING) for line in lines)
    return lines if is_plain else []
