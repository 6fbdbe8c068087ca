"""Decides whether a word is random, as a secret is: by its entropy, and by other meanings that a long word may have.
Pure.

Only a word in a place for secrets is asked about (``core/text/redaction.py``): elsewhere a random word is a hash, an id
or a piece of a file more often than a secret.
"""

from __future__ import annotations

from collections import Counter
from math import log2

SHORTEST = 16
"""Characters. Shorter random words cannot be told from names with numbers."""
_SHORT, _PART, _LABEL = 8, 5, 24
"""Characters in the shortest word that is not a name, in the shortest part that may not be a name (``k8s``), and in a
host label that is longer than top-level domains and file suffixes are."""
_BITS = 3.0
"""Shannon entropy per character. Sixteen random hexadecimal digits have 3.2 on average, a word in a language less."""
_HASHES = (40, 64, 96, 128)
"""Hexadecimal digits in SHA-1, SHA-256, SHA-384 and SHA-512."""
_ALGORITHMS = ("sha1-", "sha256", "sha384", "sha512", "md5-", "blake2", "blake3")
_VOWELS = frozenset("aeiouyAEIOUY")
_SHELL = frozenset(" \n\t;|&$`<>(){}'\"*")
_SIGNS = frozenset("-_./+~=:@,#%")


def is_random(word: str) -> bool:
    """Return whether the word is long and random, and not a path, address, hash, UUID, version or name."""
    bare = word.rstrip("=")
    if len(bare) < SHORTEST or word.startswith(("/", "./", "../", "~", "$")) or "://" in word:
        return False
    if bare.lower().startswith(_ALGORITHMS) or _is_hash(bare) or _is_uuid(bare):
        return False
    kinds = (any(map(str.isdecimal, bare)), any(map(str.islower, bare)), any(map(str.isupper, bare)))
    if sum(kinds) < 2 or _entropy(bare) < _BITS:
        return False
    pieces = "".join(" " if character in _SIGNS else character for character in bare).split()
    return not all(_is_name(piece) or _is_hash(piece) for piece in pieces)


def reads_as_name(word: str) -> bool:
    """Return whether the word may name a program, file, host, branch or address: it is short, consists of words, or has
    a short last label behind a dot, as hosts and files do (``evil2.example:80/x``)."""
    bare = word.rstrip("=")
    if len(word) < _SHORT or not any(map(str.isdecimal, bare)) or not any(map(str.isalpha, bare)):
        return True
    if bare.lower().startswith(("0x", "file:")) or "://" in word:
        return True
    host = bare.partition("/")[0].partition(":")[0]
    if any("." in part and len(part.rpartition(".")[2]) < _LABEL for part in (bare, host)):
        return True
    pieces = "".join(" " if character in _SIGNS else character for character in bare).split()
    return all(len(piece) < _PART or _is_name(piece) for piece in pieces)


def holds_line(word: str) -> bool:
    """Return whether the word is a shell line in base64 or hexadecimal: printable text with a shell's special
    characters. Eight random bytes are printable once in 2,700 times."""
    from binascii import Error, a2b_base64, unhexlify

    for decode, digits in ((a2b_base64, word.rstrip("=") + "=" * (-len(word.rstrip("=")) % 4)), (unhexlify, word)):
        try:
            text = decode(digits).decode("ascii").strip()
        except (Error, ValueError):
            continue
        if text.replace("\n", " ").replace("\t", " ").isprintable() and not _SHELL.isdisjoint(text):
            return True
    return False


def _entropy(word: str) -> float:
    """Return the characters' Shannon entropy in bits."""
    return sum(-count / len(word) * log2(count / len(word)) for count in Counter(word).values())


def _is_hexadecimal(word: str) -> bool:
    return not word.strip("0123456789abcdef") or not word.strip("0123456789ABCDEF")


def _is_hash(word: str) -> bool:
    return len(word) in _HASHES and _is_hexadecimal(word)


def _is_uuid(word: str) -> bool:
    parts = word.split("-")
    return [len(part) for part in parts] == [8, 4, 4, 4, 12] and all(map(_is_hexadecimal, parts))


def _is_name(piece: str) -> bool:
    """Return whether a piece is a number, or consists of words, perhaps with a number behind: ``2024``, ``my``,
    ``buildNumber``, ``HTML5``."""
    if piece.isdecimal():
        return len(piece) <= 8
    letters = piece.rstrip("0123456789")
    if len(piece) - len(letters) > 4 or not letters.isalpha():
        return False
    if letters.isupper() or letters.islower() or letters[1:].islower():
        return len(letters) < 4 or any(character in _VOWELS for character in letters)
    humps = sum(map(str.isupper, letters))
    return len(letters) >= 4 * humps
