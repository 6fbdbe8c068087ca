"""Secrets by their place in a text: headers, addresses, assignments, options, members, as data. Pure.

Every pattern takes time proportional to the text, whatever the text is.
"""

from __future__ import annotations

from mudroom.typing import NamedTuple


class Shape(NamedTuple):
    name: str
    hints: tuple[str, ...]
    """In lower case; the pattern cannot match a text without any hint."""
    pattern: str
    """Its group ``secret`` is hidden."""
    needs: str = ""
    """Another text that must occur."""
    check: str = ""
    """``random``: hidden only if it is; ``mixed``: only if it has a digit; ``hash``: has dollar signs."""


NAMES = (
    r"(?=[ptsaeo])(?:passwords?|passwd|passphrase|(?<!old)pwd(?!\\?[\"']?(?:=|\s{1,9})[\"']?(?:[/~.]|os\.))|pass|tokens?"
    r"|secrets?|api[_-]?keys?|access[_-]?keys?|secret[_-]?keys?|account[_-]?keys?|auth[_-]?keys?|private[_-]?keys?"
    r"|encryption[_-]?keys?|signing[_-]?keys?|secret_key_base|storage[_-]?keys?|oauth2[_-]bearer|pswd|psk|(?<![a-z])pw)"
)
"""Name endings for variables, options and members with secret values. A ``pwd`` with a path as its value does not
count."""
NAME_HINTS = ("pass", "pw", "psk", "pswd", "token", "secret", "key", "oauth2")
_REFERENCE = r"\$(?:\w+|\{(?!\w+:?[-=+][^}$\s])[^}]{0,200}\}|\()"
"""Reference to a variable, without a default value in it (``${NAME:-VALUE}``)."""
HARMLESS = rf"(?!(?:true|false|none|null|yes|no|on|off|\d{{1,4}})(?![^\s'\",;&|)]))(?!{_REFERENCE})"
"""Not a secret: switches, small numbers, and references to variables."""
_BARE = r"\$\{[^}\n]{0,200}\}|\\[ |;&<>$]|[^\s|;&<>'\"]"
_AFTER = r"(?![\s|;&),\]}.:])"
"""If one of these follows a quote, the quote ends the quoting around the whole word; it does not continue a value."""
_VALUE = (
    rf"(?P<secret>(?:(?:''|\"\"){_AFTER}(?!\Z)|\$?'[^']+'|\$?\"(?!{_REFERENCE})[^\"]+\"|{HARMLESS}(?!['\"]|\$['\"])(?:{_BARE}))"
    rf"(?:{_BARE}|'{_AFTER}[^'\n]*'|\"{_AFTER}[^\"\n]*\")*)"
)
"""A value as a shell parses it: quoted or unquoted pieces without a space between."""
_WEAK = (
    r"(?:keys?|auth|credentials?|creds?|dsn|webhook(?:[_-]?url)?|jwt|bearer|signature|pat|licen[cs]e|session|salt|seed"
    r"|hmac|conn(?:ection)?[_-]?str(?:ing)?|sas|appid|sid|ticket|nonce)"
)
"""Endings in names whose values are secret if they are random."""
_WEAK_HINTS = (
    *("key", "auth", "cred", "dsn", "webhook", "jwt", "bearer", "signature", "licen", "session", "hmac", "conn"),
    *(
        f"{name}{sign}"
        for name in ("pat", "salt", "seed", "sas", "appid", "sid", "ticket", "nonce")
        for sign in "=:\"' "
    ),
)
_PUBLIC = (
    r"(?![a-z0-9_.-]{0,60}(?:public|pub|cache|sort|primary|foreign|partition|host|group|recv|routing|object|row"
    r"|translation|i18n|registry|known|ssh)[_-]?key)"
)
"""Names for keys that are not secret."""
_VERSION = (
    r"(?![\^~<>=v ]{0,3}\d{1,6}(?:\.[\dxX*]{1,9}){1,3}(?:[-+][\w.-]{1,40})?(?: \|\| [^\"']{1,60})?(?:[\"'\s,}]|\Z))"
)
"""Not a version: ``"js-tokens": "^4.0.0"``."""
_BETWEEN = r"(?:\s|\\n){1,9}"
"""Space, also as written in a text for printf."""

SHAPES: tuple[Shape, ...] = (
    Shape(
        "private key",
        ("private key-----", "private key block-----"),
        r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?P<secret>(?:[^-]|-(?!----))+)(?:-----END|$)",
    ),
    Shape(
        "authorization header",
        ("authorization",),
        r"(?i)authorization[\"']?\s*[:=]\s*[\"']?(?:(?:basic|bearer|token|negotiate|apikey)\s+)?"
        r"(?P<secret>(?:digest|aws4-hmac-sha256)\s[^\"'\r\n]+|[^\s\"']+)",
    ),
    Shape("bearer token", ("bearer",), r"(?i)\bbearer\s+(?P<secret>[A-Za-z0-9._~+/=-]{16,})"),
    Shape(
        "secret header",
        ("-key", "apikey", "token", "cookie", "x-"),
        r"(?i)(?<![\w-])(?:(?:x-)?(?:api|goog-api|subscription|ocp-apim-subscription)-key|apikey|private-token"
        r"|(?:circle|job|deploy)-token|dd-api-key|dd-application-key"
        r"|x-[a-z-]{0,40}(?:token|key|secret|auth|password)|(?:set-)?cookie)[\"']?:\s*[\"']?(?P<secret>[^\"'\r\n]+)",
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
        ("sig=", "signature=", "-credential=", "code=", "auth=", "hapikey=", "appid="),
        r"(?i)[?&](?:sig|(?:x-amz-|x-goog-)?signature|x-amz-credential|code|auth|hapikey|appid)=(?!\d{1,9}(?![^\s&#'\"]))(?P<secret>[^\s&#'\"]+)",
    ),
    Shape("key in a URL", ("key=",), r"(?i)[?&]key=(?P<secret>[^\s&#'\"]{16,})"),
    Shape("assignment", NAME_HINTS, rf"(?i){NAMES}\\?[\"']?=(?!=){_VALUE}", "="),
    Shape("option", NAME_HINTS, rf"(?i)(?<![^\s'\"])--?(?!no-)(?:[a-z0-9]+[_-]){{0,6}}{NAMES}\s+(?!-){_VALUE}", "-"),
    Shape(
        "member",
        NAME_HINTS,
        rf"(?i){NAMES}(?:\\?[\"']\s*:\s*|:)\\?[\"']{_VERSION}(?P<secret>(?:[^\"'\\]|\\[^\"'])+)",
        ":",
    ),
    Shape(
        "code",
        NAME_HINTS,
        rf"(?i){NAMES}\\?[\"']?\]?(?:\s{{0,9}}:\s{{0,9}}[\w\[\]]{{1,30}})?\s{{0,9}}=\s{{0,9}}(?:'\"'\")?"
        rf"(?P<secret>'[^'\n]+'|\"(?!{_REFERENCE})[^\"\n]+\")",
        "=",
    ),
    Shape(
        "YAML",
        NAME_HINTS,
        rf"(?im)(?<![^\s'\"{{,\\])(?:[a-z0-9]{{1,30}}[_.-]){{0,6}}{NAMES}:[ \t]{{1,9}}(?![|>&*!\[{{]){_VERSION}"
        rf"(?P<secret>'[^'\n]+'|\"(?!{_REFERENCE})[^\"\n]+\""
        rf"|{HARMLESS}(?:[^\s'\"\\,}}]{{8,}}|(?=[a-z]{{0,6}}\d)[^\s'\"\\,}}]{{4,7}})"
        rf"(?=[ \t]{{0,9}}(?:['\"\\\n,}}]|\Z)))",
        ":",
    ),
    Shape(
        "setting",
        NAME_HINTS,
        rf"(?i)\bconfig(?:ure)?\s{{1,9}}set\s{{1,9}}(?:--?[\w-]{{1,30}}\s{{1,9}}){{0,3}}[^\s'\"=]{{0,200}}?{NAMES}\s{{1,9}}{_VALUE}",
        "config",
    ),
    Shape(
        "INI",
        NAME_HINTS,
        rf"(?i){NAMES}[ \t]{{1,9}}[:=]{{1,2}}[ \t]{{1,9}}(?!{_REFERENCE})"
        rf"(?P<secret>[^\s'\"`$(){{}}\[\];,<>\\]{{6,}})(?![(\[{{])",
        "=",
        "mixed",
    ),
    Shape(
        "weak name",
        _WEAK_HINTS,
        rf"(?i)(?<![A-Za-z0-9_.-])-{{0,2}}{_PUBLIC}_{{0,2}}(?:[a-z0-9]{{1,30}}[_.-]{{1,2}}){{0,6}}[a-z0-9]{{0,30}}?{_WEAK}"
        r"\\?[\"']?\]?[ \t]{0,3}"
        r"(?:=>|[:=]{1,2})[ \t]{0,3}\\?[\"']?(?:(?:basic|bearer|token)\s|base64:)?(?P<secret>[A-Za-z0-9+/=_.~-]{16,})",
        "",
        "random",
    ),
    Shape(
        "weak option",
        _WEAK_HINTS,
        rf"(?i)(?<![^\s'\"])--?{_PUBLIC}(?:[a-z0-9]{{1,30}}[_-]){{0,6}}{_WEAK}[ \t]{{1,9}}"
        r"[\"']?(?P<secret>[A-Za-z0-9+/=_.~-]{16,})",
        "-",
        "random",
    ),
    Shape(
        "netrc",
        ("login", "user", "account"),
        rf"(?i)\b(?:login|user(?:name)?|account){_BETWEEN}[^\s\\]{{1,200}}{_BETWEEN}(?:password|passwd){_BETWEEN}"
        r"(?P<secret>[^\s'\"\\]+)",
        "passw",
    ),
    Shape(
        "pgpass",
        (".pgpass",),
        r"(?<![^\s'\"])[\w.*-]{1,100}:(?:\d{1,5}|\*):[\w*-]{1,60}:[\w*.-]{1,60}:(?P<secret>[^\s:'\"\\]+)",
    ),
    Shape(
        "SQL",
        ("identified", "password"),
        r"(?i)\b(?:identified\s{1,9}(?:with\s{1,9}\S{1,60}\s{1,9})?(?:by|as)"
        r"|(?:role|user)\s{1,9}\S{1,100}\s{1,9}(?:[a-z]{1,20}\s{1,9}){0,6}?password)"
        r"\s{1,9}['\"\\]{1,7}(?P<secret>[^'\"\\]+)",
        " ",
    ),
    Shape(
        "SQL function", ("password(",), r"(?i)\bpassword\(\s{0,9}['\"\\]{1,7}(?P<secret>[^'\"\\]+)['\"\\]{1,7}\s{0,9}\)"
    ),
    Shape(
        "exported",
        NAME_HINTS,
        r"(?i)(?<![\w-])(?:setenv|set[ \t]{1,9}-[a-z]{0,5}x[a-z]{0,5})[ \t]{1,9}"
        rf"\w{{0,60}}?{NAMES}[ \t]{{1,9}}{_VALUE}",
        "set",
    ),
    Shape(
        "password hash",
        ("$1$", "$5$", "$6$", "$7$", "$y$", "$2", "$apr1$", "$argon2", "$scrypt$", "$pbkdf2", "$krb5"),
        r"\$(?:[1567y]|2[abxy]|apr1|argon2(?:id?|d)|scrypt|pbkdf2-[a-z0-9]{3,9}|krb5(?:asrep|tgs))\$"
        r"(?P<secret>[./A-Za-z0-9$=,+-]{16,})",
        "",
        "hash",
    ),
    Shape("openssl", ("pass:",), r"\bpass:(?P<secret>[^\s'\"]+)"),
)
