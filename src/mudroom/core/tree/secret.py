"""Which files are secrets. Every part of mudroom asks here: masks, reviews, flags, exports, bases, toolchains.

The names are in ``data/secrets.txt``, compiled at first use. A name alone decides for some (``.env``); for others,
which many projects have without a secret in them (``.npmrc``), the content does. Secrets appear empty to commands
unless the policy shows them. Directories in ``ELSEWHERE`` contain third-party files (packages, builds): they are not
searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache

from mudroom.core.tree.pattern import matches
from mudroom.typing import Literal

Test = Literal["", "name", "key", "content"]
"""How a file is found to be a secret. Empty: it is none."""

LIMIT = 1 << 20
"""Bytes. A larger file that only its content could clear is a secret."""
ELSEWHERE = frozenset({
    b".git", b".hg", b".svn", b".mudroom", b"node_modules", b"site-packages", b"dist-packages", b"vendor", b".venv",
    b"venv", b".tox", b".nox", b"__pycache__", b"target", b".next", b".cache", b".mypy_cache", b".pytest_cache",
    b".ruff_cache", b".gradle", b".terraform",
})  # fmt: skip
_NEVER = tuple(b".example .sample .template .dist .pub .md .tmpl .tpl .j2 .erb .baseline".split())
_EXAMPLES = frozenset(b"example examples sample samples template templates".split())
"""Words in a name that leave the decision to the content."""
_COPIES = (b"~", b".bak", b".old", b".orig", b".save", b".backup", b".bkp", b".swp", b".swo", b".tmp", b".copy")
"""What editors and users append to a copy."""
_CODE = frozenset({
    b".py", b".pyi", b".js", b".mjs", b".cjs", b".jsx", b".ts", b".mts", b".cts", b".tsx", b".go", b".rs", b".rb",
    b".java", b".kt", b".kts", b".scala", b".c", b".h", b".cc", b".cpp", b".hpp", b".cs", b".swift", b".php", b".pl",
    b".pm", b".sh", b".bash", b".ps1", b".lua", b".ex", b".exs", b".erl", b".hs", b".ml", b".clj", b".vue",
    b".svelte", b".html", b".htm", b".css", b".scss", b".rst", b".adoc", b".svg", b".png", b".jpg", b".gif",
    b".ipynb", b".proto", b".sql", b".tf", b".po", b".pyc", b".o", b".so",
})  # fmt: skip
"""Suffixes of files that no pattern matches, unless their name begins with a dot."""
_SIGNS = bytes(byte if chr(byte).isalnum() and byte < 128 else 32 for byte in range(256))

UNKNOWN = (b"/",)
"""The patterns if a policy cannot be read: no file has this name."""


class _Rules:
    """The table by pattern type."""

    def __init__(self) -> None:
        from mudroom.core.text.table import read_table

        self.names: dict[bytes, Test] = {}
        self.patterns: list[tuple[bytes, bytes, Test]] = []
        """Beginning and end of a name."""
        self.places: dict[bytes, list[tuple[bytes, Test]]] = {}
        """By last name: the directories above, with slashes around."""
        self.stores: list[tuple[bytes, Test]] = []
        more: dict[str, tuple[bytes, ...]] = {}
        for row in read_table("secrets"):
            column, _source, listed = row.split(" | ")
            test: Test = "name" if column == "name" else "key" if column == "key" else "content"
            more[column] = tuple(listed.encode().split())
            for name in more[column] if column not in ("word", "suffix") else ():
                self._add(name, test)
        self.words, self.suffixes = frozenset(more["word"]), more["suffix"]
        self.beginnings = tuple(start for start, _end, _test in self.patterns if start)
        self.ends = tuple(end for start, end, _test in self.patterns if not start)
        """A name that has none of these matches no pattern."""
        self.above = tuple({above for rows in self.places.values() for above, _test in rows})

    def _add(self, name: bytes, test: Test) -> None:
        above, _slash, last = name.rpartition(b"/")
        start, star, end = last.partition(b"*")
        if above and last == b"*":
            self.stores.append((b"/" + above + b"/", test))
        elif above:
            self.places.setdefault(last, []).append((b"/" + above + b"/", test))
        elif star:
            self.patterns.append((start, end, test))
        else:
            self.names.setdefault(name, test)


_rules = cache(_Rules)


def tests_in(directory: bytes) -> Callable[[bytes], Test]:
    """Return the function that gives the test for a name in this directory, a path from the project's root."""
    above = b"/" + directory.lower() + b"/" if directory else b"/"
    rules = _rules()
    names = rules.names
    places = dict(rules.places) if above.endswith(rules.above) else {}
    of_store: Test = next((test for store, test in rules.stores if store in above), "") if b"/." in above else ""

    def test(name: bytes) -> Test:
        lower = name.lower()
        if lower[lower.rfind(b".") :] in _CODE and lower[:1] != b".":
            found = names.get(lower, "")
        else:
            found = _by_pattern(rules, lower)
        if (places or of_store) and found != "name" and not lower.endswith(_NEVER):
            kinds = [kind for place, kind in places.get(lower, ()) if above.endswith(place)]
            return "name" if "name" in (*kinds, of_store) else kinds[0] if kinds else found or of_store
        return found

    return test


def secret_test(path: bytes) -> Test:
    """Return how the file at ``path`` is found to be a secret, as far as its name and place tell."""
    above, _slash, name = path.rpartition(b"/")
    return tests_in(above)(name)


def sent_test(path: bytes) -> Test:
    """Return the test for a file that is sent elsewhere. Programs read certificates and examples among others' files;
    there only names count that mean nothing else."""
    above, _slash, name = path.rpartition(b"/")
    if ELSEWHERE.isdisjoint(above.split(b"/")):
        return secret_test(path)
    lower = name.lower()
    if lower.endswith(_NEVER):
        return ""
    return "name" if lower.startswith((b".env.", b"id_rsa.", b"id_ed25519.")) else _rules().names.get(lower, "")


def _by_pattern(rules: _Rules, lower: bytes) -> Test:
    if lower.endswith(_COPIES):
        lower = _original(lower)
    if lower.endswith(_NEVER):
        return ""
    test = rules.names.get(lower, "")
    if not test and (lower.startswith(rules.beginnings) or lower.endswith(rules.ends)):
        fits = (kind for start, end, kind in rules.patterns if lower.startswith(start) and lower.endswith(end))
        test = next(fits, "")
    if not test and lower.endswith(rules.suffixes) and not rules.words.isdisjoint(lower.translate(_SIGNS).split()):
        test = "content"
    if test == "name" and not _EXAMPLES.isdisjoint(lower.translate(_SIGNS).split()):
        return "content"
    return test


def _original(lower: bytes) -> bytes:
    """Return the name of which this one is a copy's: ``server.key.bak``, ``.env~``, ``.server.key.swp``."""
    while lower.endswith(_COPIES):
        is_swap = lower.endswith((b".swp", b".swo"))
        lower = lower[:-1] if lower.endswith(b"~") else lower.rpartition(b".")[0]
        if is_swap and lower not in _rules().names:
            lower = lower.removeprefix(b".")
    return lower


def holds(test: Test, data: bytes | None) -> bool:
    """Return whether a file with this content is a secret. ``data``: at most ``LIMIT`` bytes; None: more, or it cannot
    be read."""
    if test in ("", "name") or data is None:
        return test != ""
    if not data.strip():
        return False
    from mudroom.core.text.secret_content import holds_credential, is_public_key

    return not is_public_key(data) if test == "key" else holds_credential(data)


def is_masked(path: bytes, mask: Iterable[bytes], show: Iterable[bytes]) -> bool:
    """Return whether the file may be a secret, and is not shown. The policy's ``show`` comes first, then the name, then
    ``mask``. Whether its content clears it is known to the search (``stage/views/secret.py``)."""
    if matches(path, show):
        return False
    test = secret_test(path)
    is_searched = test != "content" or ELSEWHERE.isdisjoint(path.split(b"/"))
    return (test != "" and is_searched) or matches(path, mask)
