"""Secrets out of texts before they are written down: pure, by shape, and exactly where a value is known.

What is hidden is the value alone; what is around it stays, so that a reader still sees what was done. A row of
``SHAPES`` is tried only if one of its hints is in the text, so ordinary commands cost a few searches and compile
nothing. Every pattern takes time in proportion to the text, whatever the text is.

It cannot know everything: a password that looks like a word, given to a program in a way of its own, stays. Whole
hashes, UUIDs and paths are never hidden for their looks alone.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

MARK = "[redacted]"
LONGEST = 32_768
"""Characters of one text that the journal keeps."""
MOST = 1_000
"""Entries of one list."""
SHORTEST = 8
"""Characters. A known value that is shorter stands in too many other words to be hidden wherever it stands."""


class Shape(NamedTuple):
    name: str
    hints: tuple[str, ...]
    """In lower case; without one of them in the text the pattern cannot match."""
    pattern: str
    """Its group ``secret`` is what is hidden."""
    needs: str = ""
    """Has to be in the text as well."""


_NAMES = (
    r"(?=[ptsaeo])(?:passwords?|passwd|passphrase|(?<!old)pwd(?!\\?[\"']?(?:=|\s{1,9})[\"']?(?:[/~.]|os\.))|pass|tokens?"
    r"|secrets?|api[_-]?keys?|access[_-]?keys?|secret[_-]?keys?|account[_-]?keys?|auth[_-]?keys?|private[_-]?keys?"
    r"|encryption[_-]?keys?|signing[_-]?keys?|secret_key_base|storage[_-]?keys?|oauth2[_-]bearer)"
)
"""What the names of variables, options and members end with whose values are secret. A ``pwd`` that is a path is none.
"""
_NAME_HINTS = ("pass", "pwd", "token", "secret", "key", "oauth2")
_BYTE_HINTS = tuple(hint.encode() for hint in _NAME_HINTS)
_REFERENCE = r"\$(?:\w+|\{(?!\w+:?[-=+][^}$\s])[^}]{0,200}\}|\()"
"""To a variable, without a value that stands in for it (``${NAME:-VALUE}``)."""
_HARMLESS = rf"(?!(?:true|false|none|null|yes|no|on|off|\d{{1,4}})(?![^\s'\",;&|)]))(?!{_REFERENCE})"
"""Values that are none: switches, small numbers, and references to variables."""
_BARE = r"\$\{[^}\n]{0,200}\}|\\[ |;&<>$]|[^\s|;&<>'\"]"
_AFTER = r"(?![\s|;&),\]}.:])"
"""A quote before one of these ends what was quoted around the whole, rather than going on with a value."""
_VALUE = (
    rf"(?P<secret>(?:(?:''|\"\"){_AFTER}(?!\Z)|\$?'[^']+'|\$?\"(?!{_REFERENCE})[^\"]+\"|{_HARMLESS}(?!['\"]|\$['\"])(?:{_BARE}))"
    rf"(?:{_BARE}|'{_AFTER}[^'\n]*'|\"{_AFTER}[^\"\n]*\")*)"
)
"""As a shell reads it: pieces, quoted or not, without a space between."""
_START, _END = r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9_])"


def _known(name: str, hints: str, body: str) -> Shape:
    """Tokens that say by themselves what they are: by their makers' documentation, and as secret scanners know them."""
    return Shape(name, tuple(hints.split()), rf"{_START}(?P<secret>{body}){_END}")


_LOGINS = ("docker", "podman", "nerdctl", "buildah", "skopeo", "helm", "oras", "crane", "regctl", "az", "oc", "cf")
"""Programs whose ``login`` takes a password with ``-p``."""

SHAPES: tuple[Shape, ...] = (
    Shape(
        "private key",
        ("private key-----", "private key block-----"),
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?P<secret>(?:[^-]|-(?!----))+)(?:-----END|$)",
    ),
    _known("AWS access key", "akia asia abia acca", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}"),
    _known("GitHub token", "gho_ ghp_ ghs_ ghu_ ghr_", r"gh[opsur]_[A-Za-z0-9]{30,255}"),
    _known("GitHub fine-grained token", "github_pat_", r"github_pat_[A-Za-z0-9_]{22,255}"),
    _known("GitLab token", "glpat-", r"glpat-[A-Za-z0-9_.-]{20,255}"),
    _known("Slack token", "xox xapp-", r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,255}"),
    Shape("Slack webhook", ("hooks.slack.com/",), r"hooks\.slack\.com/(?:services|workflows)/(?P<secret>[\w/-]+)"),
    _known("npm token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _known("PyPI token", "pypi-", r"pypi-[A-Za-z0-9_-]{50,}"),
    _known("Anthropic key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{20,}"),
    _known("OpenAI key", "sk-", r"sk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}"),
    _known("Stripe key", "k_live_ k_test_", r"[rs]k_(?:live|test)_[A-Za-z0-9]{10,99}"),
    _known("Google API key", "aiza", r"AIza[A-Za-z0-9_-]{35}"),
    _known("Google OAuth token", "ya29.", r"ya29\.[A-Za-z0-9_-]{20,}"),
    _known("Hugging Face token", "hf_", r"hf_[A-Za-z0-9]{30,}"),
    _known("DigitalOcean token", "_v1_", r"do[opr]_v1_[a-f0-9]{64}"),
    _known("SendGrid key", "sg.", r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    _known("age key", "age-secret-key-", r"AGE-SECRET-KEY-1[A-Z0-9]{50,}"),
    _known("JSON web token", "eyj", r"eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
    Shape(
        "authorization header",
        ("authorization",),
        r"(?i)authorization[\"']?\s*[:=]\s*[\"']?(?:(?:basic|bearer|token|negotiate|apikey)\s+)?"
        r"(?P<secret>(?:digest|aws4-hmac-sha256)\s[^\"'\r\n]+|[^\s\"']+)",
    ),
    Shape("bearer token", ("bearer",), r"(?i)\bbearer\s+(?P<secret>[A-Za-z0-9._~+/=-]{16,})"),
    Shape(
        "secret header",
        ("-key", "apikey", "token", "cookie"),
        r"(?i)(?<![\w-])(?:(?:x-)?(?:api|goog-api|subscription|ocp-apim-subscription)-key|apikey|private-token"
        r"|x-[a-z-]{0,30}token|(?:set-)?cookie)[\"']?:\s*[\"']?(?P<secret>[^\"'\r\n]+)",
        ":",
    ),
    Shape("token before a word", ("x-oauth-basic@",), r"://(?P<secret>[^\s/?#@:'\"]+):x-oauth-basic@"),
    Shape("password in a URL", ("://",), r"://[^\s/?#@:'\"]*:(?P<secret>[^\s/@'\"]+)@"),
    Shape(
        "token in a URL",
        ("://",),
        r"://(?P<secret>[^\s/?#@:'\"]{20,})(?::[^\s/@'\"]*)?@",
    ),
    Shape(
        "signature in a URL",
        ("sig=", "-signature=", "-credential=", "code=", "auth="),
        r"(?i)[?&](?:sig|x-amz-signature|x-goog-signature|x-amz-credential|code|auth)=(?!\d{1,9}(?![^\s&#'\"]))(?P<secret>[^\s&#'\"]+)",
    ),
    Shape("key in a URL", ("key=",), r"(?i)[?&]key=(?P<secret>[^\s&#'\"]{16,})"),
    Shape("assignment", _NAME_HINTS, rf"(?i){_NAMES}\\?[\"']?=(?!=){_VALUE}", "="),
    Shape("option", _NAME_HINTS, rf"(?i)(?<![^\s'\"])--?(?!no-)(?:[a-z0-9]+[_-]){{0,6}}{_NAMES}\s+(?!-){_VALUE}", "-"),
    Shape(
        "member",
        _NAME_HINTS,
        rf"(?i){_NAMES}\\?[\"']\s*:\s*\\?[\"'](?P<secret>(?:[^\"'\\]|\\[^\"'])+)",
        ":",
    ),
    Shape(
        "code",
        _NAME_HINTS,
        rf"(?i){_NAMES}\\?[\"']?\]?(?:\s{{0,9}}:\s{{0,9}}[\w\[\]]{{1,30}})?\s{{0,9}}=\s{{0,9}}"
        rf"(?P<secret>'[^'\n]+'|\"(?!{_REFERENCE})[^\"\n]+\")",
        "=",
    ),
    Shape(
        "YAML",
        _NAME_HINTS,
        rf"(?im)(?<![^\s'\"{{,\\])(?:[a-z0-9]{{1,30}}[_.-]){{0,6}}{_NAMES}:[ \t]{{1,9}}(?![|>&*!\[{{])"
        rf"(?P<secret>'[^'\n]+'|\"(?!{_REFERENCE})[^\"\n]+\""
        rf"|{_HARMLESS}(?:[^\s'\"\\,}}]{{8,}}|(?=[a-z]{{0,6}}\d)[^\s'\"\\,}}]{{4,7}})"
        rf"(?=[ \t]{{0,9}}(?:['\"\\\n,}}]|\Z)))",
        ":",
    ),
    Shape(
        "setting",
        _NAME_HINTS,
        rf"(?i)\bconfig(?:ure)?\s{{1,9}}set\s{{1,9}}(?:--?[\w-]{{1,30}}\s{{1,9}}){{0,3}}[^\s'\"=]{{0,200}}?{_NAMES}\s{{1,9}}{_VALUE}",
        "config",
    ),
    Shape(
        "user of curl",
        ("curl",),
        r"\bcurl\b[^|;&\n]{0,300}?\s(?:-u|-U|--user|--proxy-user)[ =]?[\"']?[^\s:'\"]+:(?P<secret>[^\s'\"]+)",
    ),
    Shape(
        "cookie of curl",
        ("curl",),
        r"\bcurl\b[^|;&\n]{0,300}?\s(?:-b|--cookie)[ =]?[\"']?[^\s=;'\"]{1,100}=(?P<secret>[^\s;'\"]+"
        r"(?:;\s?[^\s=;'\"]{1,100}=[^\s;'\"]+)*)",
    ),
    Shape("zip", ("zip",), r"\b(?:un)?zip\b[^|;&\n]{0,300}?\s-P\s{0,9}(?P<secret>'[^']*'|\"[^\"]*\"|[^\s'\"]+)"),
    Shape("sshpass", ("sshpass",), r"\bsshpass\s+-p\s*(?P<secret>'[^']*'|\"[^\"]*\"|\S+)"),
    Shape("mysql", ("mysql", "mariadb"), r"\b(?:mysql|mariadb)[\w-]*\b[^|;&\n]{0,300}?\s-p(?P<secret>[^\s'\"]+)"),
    Shape(
        "registry login",
        _LOGINS,
        rf"\b(?:{'|'.join(_LOGINS)})\s{{1,9}}(?:[^\s|;&]{{1,100}}\s{{1,9}}){{0,4}}"
        rf"login\b[^|;&\n]{{0,300}}?\s-p[ =]{{0,2}}"
        r"(?P<secret>(?![ =])'[^']*'|\"[^\"]*\"|[^\s'\"]+)",
        "login",
    ),
    Shape("openssl", ("pass:",), r"\bpass:(?P<secret>[^\s'\"]+)"),
)


def redact(text: str, known: Collection[str] = (), shapes: Sequence[Shape] = SHAPES) -> str:
    """The text without what is secret in it. ``known``: values that are hidden wherever they stand. ``shapes``: those
    that are to be looked for."""
    there = [value for value in known if len(value) >= SHORTEST and value in text]
    for value in sorted(there, key=len, reverse=True):  # one may be the beginning of another
        text = text.replace(value, MARK)
    if len(text) < SHORTEST:
        return text
    lowered = text.lower()
    for shape in shapes:
        if shape.needs in lowered:
            for hint in shape.hints:
                if hint in lowered:
                    text = _compiled(shape.pattern).sub(_hidden, text)
                    break
    return text


def _possible(lowered: str) -> tuple[Shape, ...]:
    """The shapes that can be in a text, by their hints."""
    found = []
    for shape in SHAPES:
        if shape.needs in lowered:
            for hint in shape.hints:
                if hint in lowered:
                    found.append(shape)
                    break
    return tuple(found)


def redact_words(words: Sequence[str], known: Collection[str] = (), shapes: Sequence[Shape] = SHAPES) -> list[str]:
    """The same of a command's words, where an option's value is the next one."""
    found = [redact(word, known, shapes) for word in words]
    if not found:
        return found
    program = _program(words)
    hiding, attached = _OPTIONS.get(program, {}), _ATTACHED.get(program, {})
    if program in _LOGINS and "login" in words:
        hiding = attached = {"-p": "all"}
    of_settings = _are_set(words)
    found[0] = _assigned(words[0], found[0])
    for index in range(1, len(found)):
        before, word = words[index - 1], words[index]
        way = hiding.get(before)
        if way is None and _is_value(word) and not word.startswith("-"):
            is_setting = of_settings and _compiled(rf"(?i).*{_NAMES}\Z").match(before) is not None
            way = "all" if is_setting or _is_secret_option(before, word) else None
        if way is not None:
            found[index] = _by_way(way, word, found[index])
        elif attached and len(word) > 2 and word[:2] in attached:
            found[index] = word[:2] + _by_way(attached[word[:2]], word[2:].removeprefix("="), found[index][2:])
        elif not _LINE.fullmatch(before):
            found[index] = _assigned(word, found[index])
    return found


_LINE = re.compile(r"-[a-z]*[ce]")
"""An option whose value is a line for a shell, or a program: ``-c``, ``-lc``, ``-e``."""


def _by_way(way: str, word: str, redacted: str) -> str:
    """``all``: it is a secret; ``user``, ``cookie``: what is after the first colon, or equals sign, is one."""
    if way == "all":
        return MARK
    name, sign, value = word.partition(":" if way == "user" else "=")
    return name + sign + MARK if value else redacted


def _assigned(word: str, redacted: str) -> str:
    """A word that is one assignment, ``NAME=VALUE`` or ``--name=VALUE``: all of the value is secret."""
    name, sign, value = word.partition("=")
    if not sign or " " not in value or len(name) > 100 or not any(hint in name.lower() for hint in _NAME_HINTS):
        return redacted
    if not _compiled(rf"(?i)[\w./:@-]*{_NAMES}\Z").match(name) or not _is_value(value) or value.startswith("="):
        return redacted
    return name + sign + MARK


def _are_set(words: Sequence[str]) -> bool:
    """``npm config set NAME VALUE``, ``aws configure set NAME VALUE``."""
    return any(one in ("config", "configure") and two == "set" for one, two in itertools.pairwise(words[:8]))


def redact_data(value: Any, known: Collection[str] = ()) -> Any:
    """What JSON can say, with every text in it redacted; of a dict the values. A list of texts is read as the words
    of a command. Never changes what it is given."""
    texts: list[str] = []
    _gather(value, texts)
    every = "\n".join(texts)
    shapes = _possible(every.lower())
    if not shapes and not any(one in every for one in _PROGRAMS) and not any(one in every for one in known):
        return value
    return _redacted(value, known, shapes)


def bounded(value: Any) -> Any:
    """What JSON can say, with no text and no list in it longer than a journal has to keep: what is left out is counted.
    A command may have a megabyte, and looking for secrets in that takes seconds."""
    if isinstance(value, str):
        return value if len(value) <= LONGEST else _cut(value)
    if isinstance(value, dict):
        return {key: bounded(one) for key, one in value.items()}
    if not isinstance(value, list | tuple):
        return value
    more = [f"[{len(value) - MOST:,} more]"] if len(value) > MOST else []
    return [bounded(one) for one in value[:MOST]] + more


def _cut(text: str) -> str:
    return f"{text[: LONGEST // 2]} [{len(text) - LONGEST:,} characters left out] {text[-LONGEST // 2 :]}"


def _gather(value: Any, texts: list[str]) -> None:
    if isinstance(value, str):
        texts.append(value)
    elif isinstance(value, dict):
        for one in value.values():
            _gather(one, texts)
    elif isinstance(value, list | tuple):
        for one in value:
            _gather(one, texts)


def _redacted(value: Any, known: Collection[str], shapes: Sequence[Shape]) -> Any:
    if isinstance(value, str):
        return redact(value, known, shapes)
    if isinstance(value, dict):
        return {key: _redacted(one, known, shapes) for key, one in value.items()}
    if not isinstance(value, list | tuple):
        return value
    if all(isinstance(one, str) for one in value):
        return redact_words(value, known, shapes)
    return [_redacted(one, known, shapes) for one in value]


def secret_values(environ: Mapping[bytes, bytes]) -> set[str]:
    """The values of variables whose names say that they are secret: a shell puts them into commands. Paths and numbers
    are none."""
    found = set()
    for name, value in environ.items():
        if not any(hint in name.lower() for hint in _BYTE_HINTS):
            continue
        text = value.decode("utf-8", "surrogateescape")
        if len(text) < SHORTEST or text.startswith(("/", "~", "./")) or text.isdecimal() or not text.isprintable():
            continue
        if _compiled(rf"(?i).*{_NAMES}").fullmatch(name.decode("ascii", "replace")):
            found.add(text)
    return found


_USER = {"-u": "user", "-U": "user"}
_OPTIONS: dict[str, dict[str, str]] = {
    "curl": {**_USER, "--user": "user", "--proxy-user": "user", "-b": "cookie", "--cookie": "cookie"},
    "http": {"-a": "user", "--auth": "user"},
    "https": {"-a": "user", "--auth": "user"},
    "sshpass": {"-p": "all"},
    "redis-cli": {"-a": "all"},
    "zip": {"-P": "all"},
    "unzip": {"-P": "all"},
}
"""By program: options whose next word is a secret, or has one (``_by_way``)."""
_PROGRAMS = ("http", "redis-cli")
"""Those of them that no shape has as a hint."""
_ATTACHED: dict[str, dict[str, str]] = {
    **{name: {"-p": "all"} for name in ("mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump", "sshpass")},
    "curl": {**_USER, "-b": "cookie"},
    "zip": {"-P": "all"},
    "unzip": {"-P": "all"},
}
"""The same in one word: ``-pSECRET``."""


def _program(words: Sequence[str]) -> str:
    """Which of the programs that have ways of their own, if it is one, behind sudo, env and the like, too."""
    names = (word.rpartition("/")[2] for word in words[:6])
    return next((name for name in names if name in _OPTIONS or name in _ATTACHED or name in _LOGINS), "")


def _is_secret_option(word: str, value: str) -> bool:
    """Whether the next word, ``value``, is a secret."""
    if word.lower() == "bearer":
        return True
    if not word.startswith("-") or "=" in word or len(word) > 60 or not any(one in word.lower() for one in _NAME_HINTS):
        return False
    pattern = rf"(?i)--?(?!no-)(?:[a-z0-9]+[_-]){{0,6}}{_NAMES} "
    return _compiled(pattern).match(f"{word} {value[:9]}") is not None


def _is_value(word: str) -> bool:
    return _compiled(_HARMLESS).match(word) is not None


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _hidden(match: re.Match[str]) -> str:
    first, last = match.span("secret")
    start = match.start()
    return match[0][: first - start] + MARK + match[0][last - start :]
