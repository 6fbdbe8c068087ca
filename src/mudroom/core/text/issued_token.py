"""Find tokens from ``data/issued_tokens.txt``: which may be in a text, and by which pattern. Pure, and loaded when a
text may hold a token."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from mudroom.core.text.table import read_table

PLACES: tuple[tuple[str, str], ...] = (
    ("hooks.slack.com/", r"hooks\.slack\.com/(?:services|workflows|triggers)/(?P<secret>[\w/+-]+)"),
    ("/webhooks/", r"discord(?:app)?\.com/api/(?:v\d{1,3}/)?webhooks/\d{5,25}/(?P<secret>[\w-]{20,})"),
    ("telegram.org/", r"telegram\.org/(?:file/)?bot(?P<secret>\d{5,15}(?::|%3[Aa])[\w-]{20,})"),
    (":AA", r"(?<![A-Za-z0-9])(?P<secret>\d{8,12}:AA[\w-]{30,})"),
    ("office.com/webhook", r"office\.com/webhook(?:b2)?/(?P<secret>[\w@/-]{36,})"),
    (".logic.azure.com", r"\.logic\.azure\.com(?::\d{1,5})?/workflows/(?P<secret>[a-f0-9]{32})"),
    ("hooks.zapier.com/", r"hooks\.zapier\.com/hooks/(?:catch|standard)/(?P<secret>[\w/]{8,})"),
    ("maker.ifttt.com/", r"maker\.ifttt\.com/(?:[\w-]{1,60}/){1,4}key/(?P<secret>[\w-]{10,})"),
    (".make.com/", r"hook\.\w{2,5}\d?\.make\.com/(?P<secret>[a-z0-9]{20,})"),
    ("/bot/v2/hook/", r"/open-apis/bot/(?:v2/)?hook/(?P<secret>[\w-]{20,})"),
    ("weixin.qq.com/", r"weixin\.qq\.com/cgi-bin/webhook/\w{1,20}\?key=(?P<secret>[\w-]{20,})"),
    ("hc-ping.com/", r"hc-ping\.com/(?P<secret>[\w-]{20,})"),
    ("webhook.site/", r"webhook\.site/(?P<secret>[a-f0-9-]{36})"),
    ("/hooks/", r"https?://[^\s/'\"]{1,200}/hooks/(?P<secret>[A-Za-z0-9/]{20,})"),
    ("tines.com/webhook/", r"tines\.com/webhook/(?P<secret>[\w/]{32,})"),
    ("build_hooks/", r"netlify\.com/build_hooks/(?P<secret>[a-f0-9]{20,})"),
    ("integrations/deploy/", r"vercel\.com/v1/integrations/deploy/(?P<secret>[\w/]{20,})"),
    ("/heartbeat/", r"betterstack\.com/api/v1/heartbeat/(?P<secret>\w{20,})"),
    ("cronitor.link/", r"cronitor\.link/p/(?P<secret>\w{16,})"),
    ("infura.io/", r"infura\.io/(?:ws/)?v3/(?P<secret>[a-f0-9]{32})"),
    ("alchemy.com/", r"alchemy\.com/v2/(?P<secret>[\w-]{20,})"),
    ("quiknode.pro/", r"quiknode\.pro/(?P<secret>[a-f0-9]{32,})"),
    ("/services/collector", r"/services/collector/raw/(?P<secret>[a-f0-9-]{36})"),
    ("1//0", r"(?<![A-Za-z0-9/:])(?P<secret>1//0[\w-]{30,})"),
    ("T3BlbkFJ", r"(?P<secret>[\w-]{16,200}T3BlbkFJ[\w-]{16,200})"),
    (".atlasv1.", r"(?<![A-Za-z0-9])(?P<secret>[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,})"),
    ("_mmk", r"(?<![A-Za-z0-9])(?P<secret>[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk)"),
    ("NRAL", r"(?<![A-Za-z0-9])(?P<secret>[A-Za-z0-9]{36}NRAL)"),
    ("Q~", r"(?<![\w.~-])(?P<secret>[\w.~]{3}\dQ~[\w.~-]{31,34})"),
    ("AZDO", r"(?<![A-Za-z0-9])(?P<secret>[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4})"),
    ("JQQJ99", r"(?<![A-Za-z0-9])(?P<secret>[A-Za-z0-9]{52}JQQJ99[A-Za-z0-9]{26,})"),
    ("+ASt", r"(?<![A-Za-z0-9])(?P<secret>[A-Za-z0-9+/]{70,80}\+ASt[A-Za-z0-9+/=]{8,12})"),
    ("+ACR", r"(?<![A-Za-z0-9])(?P<secret>[A-Za-z0-9+/]{40,46}\+ACR[A-Za-z0-9+/=]{4,12})"),
    ("AzSe", r"(?<![A-Za-z0-9])(?P<secret>[A-Za-z0-9]{42}AzSe[A-Za-z0-9]{6})"),
    ("AzFu", r"(?<![A-Za-z0-9])(?P<secret>[\w-]{44}AzFu[\w=-]{8})"),
    ("access_token$", r"(?P<secret>access_token\$(?:production|sandbox)\$[a-z0-9]{16}\$[a-f0-9]{32})"),
    *((f"-us{digit}", rf"(?<![A-Za-z0-9])(?P<secret>[a-f0-9]{{32}})-us{digit}\d?(?![\w-])") for digit in range(1, 10)),
    ("PuTTY-User-Key-File", r"Private-Lines: \d{1,3}\s{1,4}(?P<secret>(?:[A-Za-z0-9+/=]{20,}\s{0,4})+)"),
)
"""A text that must occur, and the pattern whose group ``secret`` is hidden: addresses that are secrets in themselves,
and tokens that are recognised by their middle."""
_ALPHABETS = {
    "d": "0-9",
    "h": "0-9A-Fa-f",
    "l": "0-9a-z",
    "u": "0-9A-Z",
    "a": "0-9A-Za-z",
    "w": "0-9A-Za-z_-",
    "b": "0-9A-Za-z_+/=-",
    "s": "0-9A-Za-z_+/=.~-",
}
_ENOUGH = 20
"""Characters that are sufficient in the last part, however long it is."""
_LONGEST_PART = 1024
"""Most characters in a part with another part behind it, so that search time stays proportional to the text."""
_KEY = 4
"""Characters that are looked up if a prefix has no separator."""


def _parts(shape: str) -> Iterator[tuple[str, str, int, bool]]:
    """Yield a shape's parts: literal, alphabet, length, exact. The literal stands before the others."""
    for piece in shape.split("}"):
        literal, brace, field = piece.partition("{")
        if brace:
            yield literal, field[0], int(field[1:].removesuffix("!")), field.endswith("!")
        elif literal:
            yield literal, "", 0, False


def pattern_of(shape: str) -> str:
    """Return a shape's regular expression; its group ``secret`` is the token."""
    import re

    parts = list(_parts(shape))
    text, exact_end = "", False
    for number, (literal, alphabet, length, exact) in enumerate(parts, 1):
        text += re.escape(literal)
        exact_end = exact
        if alphabet:
            least = length * 3 // 4 or 1
            repeat = f"{{{least},{_LONGEST_PART}}}" if number < len(parts) else f"{{{min(least, _ENOUGH)},}}"
            repeat = f"{{{length}}}" if exact else repeat
            text += f"[{_ALPHABETS[alphabet]}]{repeat}"
    end = "(?![0-9A-Za-z])" if exact_end else ""
    return rf"(?:(?<![0-9A-Za-z])|(?<=%[0-9A-Fa-f]{{2}}))(?P<secret>{text}){end}"


@functools.cache
def _index() -> tuple[dict[bytes, list[str]], dict[bytes, list[str]]]:
    """Return the shapes by their first word, and by their first characters: if a prefix runs into the token, only these
    are known."""
    whole: dict[bytes, list[str]] = {}
    begun: dict[bytes, list[str]] = {}
    for row in read_table("issued_tokens"):
        shape = row.partition(" ")[0]
        literal = shape.partition("{")[0].lstrip("_").encode()
        word = literal.translate(_WORDS).split(b" ")[0]
        if word and len(word) < len(literal):
            whole.setdefault(word, []).append(shape)
        elif word:
            begun.setdefault(word[:_KEY], []).append(shape)
    return whole, begun


_WORDS = bytes(byte if byte < 128 and chr(byte).isalnum() else 32 for byte in range(256))
_DISCORD = r"(?<![\w.-])(?P<secret>[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40})(?![A-Za-z0-9_-])"
"""A Discord bot's token: its id in base64, a time, and a digest."""


def patterns_in(text: str, runs: Sequence[bytes]) -> list[tuple[str, str]]:
    """Return the patterns for tokens that may be in a text, and how a match is checked. Each word is looked up once,
    whatever the number of shapes. ``runs``: the text's long runs of letters, digits, dots and dashes."""
    whole, begun = _index()
    words = set(text.encode("ascii", "replace").translate(_WORDS).split())
    if "%" in text:  # %3D in a URL is an equals sign, and does not begin a word
        words |= {word[2:] for word in words}
    shapes = [shape for word in words & whole.keys() for shape in whole[word]]
    for length in {len(key) for key in begun}:
        for key in {word[:length] for word in words if len(word) >= length} & begun.keys():
            shapes += begun[key]
    literals = sorted({(-len(literal), shape) for shape in shapes if (literal := next(_parts(shape))[0]) in text})
    patterns = [_pattern(shape) for _length, shape in literals]  # the longest prefix first: it hides the others
    if any(run.count(b".") == 2 and len(run) > 56 for run in runs):
        patterns.append((_DISCORD, "issued"))
    return patterns + [(pattern, "") for hint, pattern in PLACES if hint in text]


@functools.cache
def _pattern(shape: str) -> tuple[str, str]:
    literal, alphabet, _length, exact = next(_parts(shape))
    is_sure = len(literal) > _SURE and alphabet in "dhlua" and not exact
    return pattern_of(shape), "" if is_sure else "issued"


_SURE = 6
"""Prefix length in characters. After a longer prefix, letters and digits alone are a token; after a shorter one they
could be a program's name."""
_MIXED = 6
"""A token without a digit has at least so many letters in each case."""


def is_issued(token: str) -> bool:
    """Return whether a text with a token's shape is a token: program names have no digits."""
    upper = sum(map(str.isupper, token))
    return any(map(str.isdecimal, token)) or min(upper, sum(map(str.islower, token))) >= _MIXED
