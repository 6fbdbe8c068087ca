"""The directory of all names: what the gate's resolver answers here, and the rules that it is asked under.

The resolver is the gate process's only one, and writes down what it is asked. A name says whose it is (``s7.…``) and
what it resolves to.
"""

from __future__ import annotations

import re
import socket
from collections import Counter

RULES = (
    ("allow", "**.good.example", (), False),
    ("deny", "**.no.good.example", (), False),
    ("allow", "exact.example", (), False),
    ("allow", "*.wild.example", (), False),
    ("allow", "**.db.example", (5432,), False),
    ("allow", "**.proxy.example", (3128,), False),
    ("allow", "**.local.example", (8000,), True),
    ("allow", "**.tricky.example", (), False),
    ("allow", "**.home-meta.tricky.example", (), True),
)
"""Action, pattern, ports, private."""
ALLOWED = re.compile(
    r"s\d+\.(tunnel\.)?good\.example|s\d+\.(db|proxy|local)\.example|"
    r"s\d+\.[a-z0-9-]+\.tricky\.example|exact\.example"
)
"""What may be looked up. Attempts below ``no.good.example`` are denied."""

_SLOT = re.compile(r"(?:^|[^a-z])[sS](\d+)")
_PLACES = {"good": 32, "db": 34, "proxy": 35, "bad": 33}


def slot_of(name: str) -> int:
    found = _SLOT.search(name)
    return int(found.group(1)) if found else 0


def addresses(name: str, before: int = 0) -> list[str]:
    """``before``: how often it was looked up before."""
    lower = name.lower().rstrip(".")
    slot = slot_of(lower)
    tail = f"{slot >> 8}.{slot & 255}"
    loopback = f"127.99.{tail}"
    hexed = socket.inet_aton(loopback).hex()
    low = f"{hexed[:4]}:{hexed[4:]}"
    parts = lower.split(".")
    if lower.endswith(".tricky.example"):
        kinds = {
            "loop": [loopback],
            "lan": [f"10.99.{tail}"],
            "meta": ["169.254.169.254"],
            "home-meta": ["169.254.169.254"],
            "mapped": [f"::ffff:{loopback}"],
            "nat64": [f"64:ff9b::{loopback}"],
            "sixtofour": [f"2002:{low}::1"],
            "teredo": ["2001:0:2d20::" + ":".join(f"{int(one, 16) ^ 0xFFFF:x}" for one in low.split(":"))],
            "zero": ["0.0.0.0"],
            "own": ["45.31.0.1"],
            "mixed": [f"45.36.{tail}", loopback],
            "synthetic": ["198.18.0.1"],
            "multicast": ["224.0.0.1"],
            "linklocal": ["fe80::1"],
            "rebind": [f"45.37.{tail}"] if not before else [loopback],
        }
        return kinds[parts[-3]]
    if lower.endswith((".local.example", "localhost")):
        return [loopback if slot else "127.0.0.1"]
    return [f"45.{_PLACES.get(parts[-2] if len(parts) > 1 else '', 33)}.{tail}"]


def main(log: str) -> None:
    """The gate process with this directory in the place of the machine's resolver."""
    from mudroom.core.network.address import parse_ipv4, parse_ipv6
    from mudroom.net import process

    asked: Counter[str] = Counter()

    async def resolver(host: str) -> list[bytes]:
        raw = host.encode()
        literal = parse_ipv4(raw) or parse_ipv6(raw)
        if literal is not None:
            return [literal]
        with open(log, "a") as stream:
            stream.write(host + "\n")
        found = addresses(host, asked[host])
        asked[host] += 1
        return [socket.inet_pton(socket.AF_INET6 if ":" in one else socket.AF_INET, one) for one in found]

    process.main(resolver)
