"""What is said after a command of what the gate has refused: which host, why, and what to do if it was meant."""

from __future__ import annotations

import pytest

from mudroom.cli.command.run import MOST_REFUSED_HOSTS, refusal_lines
from mudroom.core.result import Denial


@pytest.mark.parametrize(
    ("target", "reason", "hint"),
    [
        (b"a.example:443", "no rule names it; nobody is there to be asked", " (mudroom net allow a.example)"),
        (b"a.example:8443", "no rule names it", " (mudroom net allow a.example:8443)"),
        (
            b"db.corp.example:5432",
            "10.1.2.3 is in a private network",
            " (if that is meant: mudroom net allow --private db.corp.example:5432)",
        ),
        (b"a.example:443", "169.254.169.254 is a metadata service", ""),
        (b"a.example:53", "no rule names it; nobody is there to be asked", " (mudroom net allow a.example)"),
        (b"127.0.0.1:8377", "no rule names this port of this machine", " (mudroom net allow 127.0.0.1:8377)"),
        (
            b"[::1]:8377",
            "an address of this machine; a rule that names the address opens it",
            " (mudroom net allow [::1]:8377)",
        ),
        (
            b"localhost:8377",
            "outside the sandbox, localhost is another machine; only a rule allows it",
            " (mudroom net allow localhost:8377)",
        ),
        (b"169.254.169.254:80", "the metadata service of a cloud", ""),
        (b"a.example:443", "policy.yaml:3: a.example denies it", ""),
        (b"a.example:443", "the client wants b.example, and not a.example", ""),
        (b"\xff", "it is no host's name", ""),
    ],
)
def test_one_line_for_each_host(target: bytes, reason: str, hint: str) -> None:
    (line,) = refusal_lines([Denial("network", target, reason)])
    assert line.endswith(f": {reason}{hint}")
    assert line.isprintable()


def test_what_is_repeated_and_what_is_too_much() -> None:
    many = [
        Denial("network", b"h%d.example:443" % number, "no rule names it", 3)
        for number in range(MOST_REFUSED_HOSTS + 2)
    ]
    lines = refusal_lines([Denial("system call", b"bpf", "refused"), *many])
    assert lines[0].startswith("refused, 3 times: h0.example:443: ")
    assert lines[-1] == "refused: 2 more hosts (mudroom net log --denied)"
    assert len(lines) == MOST_REFUSED_HOSTS + 1
