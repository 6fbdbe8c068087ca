"""The corpora of secrets and of everyday lines. The values are made here by a seeded generator: none is anybody's."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
ALPHABETS = {
    "d": string.digits,
    "h": "0123456789abcdef",
    "l": string.ascii_lowercase + string.digits,
    "u": string.ascii_uppercase + string.digits,
    "a": string.ascii_letters + string.digits,
    "w": string.ascii_letters + string.digits + "_-",
    "b": string.ascii_letters + string.digits + "+/",
    "s": string.ascii_letters + string.digits + "_-.",
}


def lines(name: str) -> Iterator[str]:
    for line in (HERE / name).read_text().splitlines():
        if line and not line.startswith("#"):
            yield line


def word(rng: random.Random, alphabet: str, length: int) -> str:
    """Return a random word with a digit at its second place, as nearly all have one."""
    made = [rng.choice(ALPHABETS[alphabet]) for _ in range(length)]
    made[1:2] = rng.choice(string.digits[2:]) if length > 1 else ""
    return "".join(made)


def filled(shape: str, rng: random.Random) -> str:
    return re.sub(r"\{([a-z])(\d+)!?\}", lambda match: word(rng, match[1], int(match[2])), shape)


def fill_place(line: str, rng: random.Random) -> tuple[str, list[str]]:
    values: list[str] = []

    def value(match: re.Match[str]) -> str:
        kinds = {"p": ("a", 12), "r": ("a", 32), "h": ("h", 32), "b": ("a", 40)}
        if match[1] == "u":
            made = "-".join(word(rng, "h", length) for length in (8, 4, 4, 4, 12))
        else:
            made = word(rng, *kinds[match[1]]) + ("=" if match[1] == "b" else "")
        values.append(made)
        return made

    return re.sub(r"\{([prhbu])\}", value, line).replace("␤", "\n"), values


def everyday() -> Iterator[str]:
    rng = random.Random(26)
    kinds = {
        "sha1": ("h", 40),
        "sha256": ("h", 64),
        "md5": ("h", 32),
        "sha512": ("b", 86),
        "b64": ("b", 200),
        "go": ("b", 43),
    }

    def value(match: re.Match[str]) -> str:
        if match[1] == "uuid":
            return "-".join(word(rng, "h", length) for length in (8, 4, 4, 4, 12))
        return word(rng, *kinds[match[1]])

    for line in lines("not_secret.txt"):
        yield re.sub(r"\{(sha1|sha256|md5|sha512|b64|go|uuid)\}", value, line)
    for line in (HERE / "commands.txt").read_text().splitlines():
        if "|" in line and not line.startswith("#"):
            yield line.partition("|")[2].strip().replace("␤", "\n")


def in_clear(value: str, text: str) -> bool:
    """Return whether the longest part of a value is still in a text."""
    return max(re.split(r"[^A-Za-z0-9]+", value), key=len) in text
