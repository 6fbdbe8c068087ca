"""Redact secrets from text before it is written down: by shape, and exactly where a value is known. Pure.

Only the value is hidden; the text around it stays, so that a reader still sees the command. A row of ``SHAPES`` is
tried only if one of its hints is in the text, so ordinary commands cost a few searches and compile no pattern. Every
pattern takes time proportional to the text, whatever the text is.

Redaction is incomplete: a password that looks like a word and is passed in a program's own way stays. Whole hashes,
UUIDs and paths are never hidden by their shape alone.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Mapping, Sequence

from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import re

MARK = "[redacted]"
LONGEST = 32_768
"""Characters of one text that the journal keeps."""
MOST = 1_000
"""Entries of one list that the journal keeps."""
SHORTEST = 8
"""Characters. A shorter known value occurs in too many other words to be hidden everywhere."""


class Shape(NamedTuple):
    name: str
    hints: tuple[str, ...]
    """In lower case; without any of them in the text the pattern cannot match."""
    pattern: str
    """Its group ``secret`` is hidden."""
    needs: str = ""
    """Another text that must occur."""


_NAMES = (
    r"(?=[ptsaeo])(?:passwords?|passwd|passphrase|(?<!old)pwd(?!\\?[\"']?(?:=|\s{1,9})[\"']?(?:[/~.]|os\.))|pass|tokens?"
    r"|secrets?|api[_-]?keys?|access[_-]?keys?|secret[_-]?keys?|account[_-]?keys?|auth[_-]?keys?|private[_-]?keys?"
    r"|encryption[_-]?keys?|signing[_-]?keys?|secret_key_base|storage[_-]?keys?|oauth2[_-]bearer)"
)
"""Endings of names of variables, options and members with secret values. A ``pwd`` with a path as its value does not
count."""
_NAME_HINTS = ("pass", "pwd", "token", "secret", "key", "oauth2")
_BYTE_HINTS = tuple(hint.encode() for hint in _NAME_HINTS)
_REFERENCE = r"\$(?:\w+|\{(?!\w+:?[-=+][^}$\s])[^}]{0,200}\}|\()"
"""Reference to a variable, without a default value in it (``${NAME:-VALUE}``)."""
_HARMLESS = rf"(?!(?:true|false|none|null|yes|no|on|off|\d{{1,4}})(?![^\s'\",;&|)]))(?!{_REFERENCE})"
"""Not a secret: switches, small numbers, and references to variables."""
_BARE = r"\$\{[^}\n]{0,200}\}|\\[ |;&<>$]|[^\s|;&<>'\"]"
_AFTER = r"(?![\s|;&),\]}.:])"
"""A quote before one of these ends the quoting around the whole word; it does not continue a value."""
_VALUE = (
    rf"(?P<secret>(?:(?:''|\"\"){_AFTER}(?!\Z)|\$?'[^']+'|\$?\"(?!{_REFERENCE})[^\"]+\"|{_HARMLESS}(?!['\"]|\$['\"])(?:{_BARE}))"
    rf"(?:{_BARE}|'{_AFTER}[^'\n]*'|\"{_AFTER}[^\"\n]*\")*)"
)
"""A value as a shell parses it: quoted or unquoted pieces without a space between."""
_START, _END = r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9_])"


def _token_shape(name: str, hints: str, body: str) -> Shape:
    """Return the shape of tokens with a known prefix: from their issuers' documentation, and as secret scanners detect
    them."""
    return Shape(name, tuple(hints.split()), rf"{_START}(?P<secret>{body}){_END}")


_LOGINS = ("docker", "podman", "nerdctl", "buildah", "skopeo", "helm", "oras", "crane", "regctl", "az", "oc", "cf")
"""Programs whose ``login`` takes a password with ``-p``."""

SHAPES: tuple[Shape, ...] = (
    Shape(
        "private key",
        ("private key-----", "private key block-----"),
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?P<secret>(?:[^-]|-(?!----))+)(?:-----END|$)",
    ),
    _token_shape("AWS access key", "akia asia abia acca", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}"),
    _token_shape("GitHub token", "gho_ ghp_ ghs_ ghu_ ghr_", r"gh[opsur]_[A-Za-z0-9]{30,255}"),
    _token_shape("GitHub fine-grained token", "github_pat_", r"github_pat_[A-Za-z0-9_]{22,255}"),
    _token_shape("GitLab token", "glpat-", r"glpat-[A-Za-z0-9_.-]{20,255}"),
    _token_shape("Slack token", "xox xapp-", r"(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{10,255}"),
    Shape("Slack webhook", ("hooks.slack.com/",), r"hooks\.slack\.com/(?:services|workflows)/(?P<secret>[\w/-]+)"),
    _token_shape("npm token", "npm_", r"npm_[A-Za-z0-9]{36}"),
    _token_shape("PyPI token", "pypi-", r"pypi-[A-Za-z0-9_-]{50,}"),
    _token_shape("Anthropic key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{20,}"),
    _token_shape("OpenAI key", "sk-", r"sk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_-]{20,}"),
    _token_shape("Stripe key", "k_live_ k_test_", r"[rs]k_(?:live|test)_[A-Za-z0-9]{10,99}"),
    _token_shape("Google API key", "aiza", r"AIza[A-Za-z0-9_-]{35}"),
    _token_shape("Google OAuth token", "ya29.", r"ya29\.[A-Za-z0-9_-]{20,}"),
    _token_shape("Hugging Face token", "hf_", r"hf_[A-Za-z0-9]{30,}"),
    _token_shape("DigitalOcean token", "_v1_", r"do[opr]_v1_[a-f0-9]{64}"),
    _token_shape("SendGrid key", "sg.", r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    _token_shape("age key", "age-secret-key-", r"AGE-SECRET-KEY-1[A-Z0-9]{50,}"),
    _token_shape("JSON web token", "eyj", r"eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
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
    """Return the text without the secrets in it. ``known``: values that are hidden wherever they occur. ``shapes``: the
    shapes to search for."""
    present = [value for value in known if len(value) >= SHORTEST and value in text]
    for value in sorted(present, key=len, reverse=True):  # a value may be the beginning of another
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
    """Return the shapes that can occur in a text, by their hints."""
    shapes = []
    for shape in SHAPES:
        if shape.needs in lowered:
            for hint in shape.hints:
                if hint in lowered:
                    shapes.append(shape)
                    break
    return tuple(shapes)


def redact_words(words: Sequence[str], known: Collection[str] = (), shapes: Sequence[Shape] = SHAPES) -> list[str]:
    """Return the words of a command without the secrets in them; the value of an option is the next word."""
    redacted = [redact(word, known, shapes) for word in words]
    if not redacted:
        return redacted
    program = _program(words)
    hiding, attached = _OPTIONS.get(program, {}), _ATTACHED.get(program, {})
    if program in _LOGINS and "login" in words:
        hiding = attached = {"-p": "all"}
    of_settings = _is_config_command(words)
    redacted[0] = _redact_assignment(words[0], redacted[0])
    for index in range(1, len(redacted)):
        before, word = words[index - 1], words[index]
        way = hiding.get(before)
        if way is None and _is_value(word) and not word.startswith("-"):
            is_setting = of_settings and _compiled(rf"(?i).*{_NAMES}\Z").match(before) is not None
            way = "all" if is_setting or _is_secret_option(before, word) else None
        if way is not None:
            redacted[index] = _redact_option(way, word, redacted[index])
        elif attached and len(word) > 2 and word[:2] in attached:
            redacted[index] = word[:2] + _redact_option(
                attached[word[:2]], word[2:].removeprefix("="), redacted[index][2:]
            )
        elif not _takes_line(before):
            redacted[index] = _redact_assignment(word, redacted[index])
    return redacted


def _takes_line(option: str) -> bool:
    """Return whether the value of an option is a line of shell or a program: ``-c``, ``-lc``, ``-e``."""
    letters = option[1:]
    return (
        option[:1] == "-"
        and letters[-1:] in ("c", "e")
        and letters.isascii()
        and letters.isalpha()
        and letters.islower()
    )


def _redact_option(way: str, word: str, redacted: str) -> str:
    """``all``: the whole word is secret; ``user``, ``cookie``: the part after the first colon or equals sign is
    secret."""
    if way == "all":
        return MARK
    name, sign, value = word.partition(":" if way == "user" else "=")
    return name + sign + MARK if value else redacted


def _redact_assignment(word: str, redacted: str) -> str:
    """Redact a word that is a single assignment, ``NAME=VALUE`` or ``--name=VALUE``: the whole value is secret."""
    name, sign, value = word.partition("=")
    if not sign or " " not in value or len(name) > 100 or not any(hint in name.lower() for hint in _NAME_HINTS):
        return redacted
    if not _compiled(rf"(?i)[\w./:@-]*{_NAMES}\Z").match(name) or not _is_value(value) or value.startswith("="):
        return redacted
    return name + sign + MARK


def _is_config_command(words: Sequence[str]) -> bool:
    """Return whether the words are of the kind ``npm config set NAME VALUE`` or ``aws configure set NAME VALUE``."""
    return any(first in ("config", "configure") and second == "set" for first, second in itertools.pairwise(words[:8]))


def redact_data(value: Any, known: Collection[str] = ()) -> Any:
    """Return JSON data with every text in it redacted; of a dict only the values. A list of texts is treated as the
    words of a command. The argument is never modified."""
    texts: list[str] = []
    _gather(value, texts)
    every = "\n".join(texts)
    shapes = _possible(every.lower())
    if (
        not shapes
        and not any(program in every for program in _PROGRAMS)
        and not any(secret in every for secret in known)
    ):
        return value
    return _redacted(value, known, shapes)


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
    elif isinstance(value, list | tuple):
        for item in value:
            _gather(item, texts)


def _redacted(value: Any, known: Collection[str], shapes: Sequence[Shape]) -> Any:
    if isinstance(value, str):
        return redact(value, known, shapes)
    if isinstance(value, dict):
        return {key: _redacted(item, known, shapes) for key, item in value.items()}
    if not isinstance(value, list | tuple):
        return value
    if all(isinstance(item, str) for item in value):
        return redact_words(value, known, shapes)
    return [_redacted(item, known, shapes) for item in value]


_KEYS = (b"api", b"access", b"secret", b"account", b"auth", b"private", b"encryption", b"signing", b"storage")
_SECRET_ENDS = (
    *(b"password passwords passwd passphrase pwd pass token tokens secret secrets secret_key_base".split()),
    *(before + dash + key for before in _KEYS for dash in (b"", b"_", b"-") for key in (b"key", b"keys")),
    *(b"oauth2_bearer", b"oauth2-bearer"),
)


def _names_secret(name: bytes) -> bool:
    """Return whether the name of a variable, in lower case, ends as ``_NAMES`` says, without compiling that: this is
    asked for each command of a session with a token in its environment."""
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
        if _names_secret(name.lower()):
            variables[name.decode("utf-8", "surrogateescape")] = text
    return variables


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
"""By program: options whose next word is a secret or contains it (``_redact_option``)."""
_PROGRAMS = ("http", "redis-cli")
"""Programs of ``_OPTIONS`` that are not a hint of any shape."""
_ATTACHED: dict[str, dict[str, str]] = {
    **{name: {"-p": "all"} for name in ("mysql", "mysqldump", "mysqladmin", "mariadb", "mariadb-dump", "sshpass")},
    "curl": {**_USER, "-b": "cookie"},
    "zip": {"-P": "all"},
    "unzip": {"-P": "all"},
}
"""As ``_OPTIONS``, with the value in the same word: ``-pSECRET``."""


def _program(words: Sequence[str]) -> str:
    """Return the program with options of its own, also after sudo, env and the like; empty if there is none."""
    names = (word.rpartition("/")[2] for word in words[:6])
    return next((name for name in names if name in _OPTIONS or name in _ATTACHED or name in _LOGINS), "")


def _is_secret_option(word: str, value: str) -> bool:
    """Return whether the next word, ``value``, is a secret."""
    if word.lower() == "bearer":
        return True
    if (
        not word.startswith("-")
        or "=" in word
        or len(word) > 60
        or not any(hint in word.lower() for hint in _NAME_HINTS)
    ):
        return False
    pattern = rf"(?i)--?(?!no-)(?:[a-z0-9]+[_-]){{0,6}}{_NAMES} "
    return _compiled(pattern).match(f"{word} {value[:9]}") is not None


def _is_value(word: str) -> bool:
    return _compiled(_HARMLESS).match(word) is not None


@functools.cache
def _compiled(pattern: str) -> re.Pattern[str]:
    import re

    return re.compile(pattern)


def _hidden(match: re.Match[str]) -> str:
    first, last = match.span("secret")
    start = match.start()
    return match[0][: first - start] + MARK + match[0][last - start :]
