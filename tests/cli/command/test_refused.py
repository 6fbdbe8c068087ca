"""What is said after a command of what it was refused: which host, call or path, why, and what to do about it."""

from __future__ import annotations

import os
import sys

import pytest

from conftest import Place
from mudroom.cli.command.refusals import MOST_REFUSED_HOSTS, MOST_REFUSED_PATHS, refusal_lines
from mudroom.core.result import Denial
from mudroom.sandbox.host.denials import NO_RENAME
from test_vault_verb import Cli
from tiers import each


@each(
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
            " (mudroom net allow '[::1]:8377')",
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
    lines = refusal_lines(many)
    assert lines[0].startswith("refused, 3 times: h0.example:443: ")
    assert lines[-1] == "refused: 2 more hosts (mudroom net log --denied)"
    assert len(lines) == MOST_REFUSED_HOSTS + 1


def test_what_a_profile_denies_is_counted() -> None:
    reason = "profile claude: {} denies it"
    denials = [
        Denial("network", b"statsig.anthropic.com:443", reason.format("statsig.anthropic.com"), 2),
        Denial("network", b"statsig.anthropic.com:53", reason.format("statsig.anthropic.com")),
        Denial("network", b"o1.ingest.sentry.io:443", reason.format("**.sentry.io")),
        Denial("network", b"a.example:443", "no rule names it"),
        Denial("network", b"b.example:443", "policy.yaml:3: profile denies it"),
    ]
    assert refusal_lines(denials) == [
        "refused: a.example:443: no rule names it (mudroom net allow a.example)",
        "refused: b.example:443: policy.yaml:3: profile denies it",
        "profile claude: 4 requests to 2 hosts of telemetry or updates denied",
    ]


def test_calls_are_named_in_one_line() -> None:
    calls = [Denial("system call", b"socket", "why", 2), Denial("system call", b"bpf", "why")]
    calls += [Denial("system call", b"socket", "another why", 3)]
    assert refusal_lines(calls) == ["refused: system calls: socket (5 times), bpf (mudroom policy why)"]
    many = [Denial("system call", b"call%d" % number, "why") for number in range(9)]
    (line,) = refusal_lines(many)
    assert line.endswith("call5, 3 more (mudroom policy why)")


def test_paths() -> None:
    paths = [Denial("metadata", b"/etc/\x1b%d" % number, "chmod outside") for number in range(MOST_REFUSED_PATHS + 2)]
    lines = refusal_lines(paths)
    assert lines[0] == "refused: /etc/\\x1b0: chmod outside"
    assert lines[MOST_REFUSED_PATHS:] == ["refused: 2 more paths (mudroom policy why)"]


def test_a_directory_that_was_not_renamed() -> None:
    assert refusal_lines([Denial("rename", b"src", NO_RENAME)]) == [
        "refused: src: an overlay cannot rename this directory: use mv, which copies it, or --view copy"
    ]


NESTED = f"{sys.executable} -c 'import os, ctypes; raise SystemExit(ctypes.CDLL(None).unshare(0x10000000) == 0)'"


def said_of_nested(place: Place, program: str, verb: tuple[str, ...]) -> str:
    """Run a program that makes namespaces of its own, and return what is said of that. Its own words on the command
    line keep a profile from switching it off."""
    cli = Cli(place)
    programs = place.home / "bin"
    programs.mkdir()
    (programs / program).write_text(f"#!/bin/sh\n{NESTED}\n")
    (programs / program).chmod(0o755)
    cli.environment["PATH"] = f"{programs}:{os.environ['PATH']}"
    done = cli(*verb, "--", program, "-c", "sandbox_mode=workspace-write")
    (line,) = [
        line for line in done.stderr.splitlines() if line.startswith("note: refused: new namespaces (unshare): ")
    ]
    return line


OTHER = "a sandbox of the command's own (bwrap, a browser's) cannot run inside mudroom's"


@pytest.mark.both_users
@pytest.mark.parametrize("verb", [("run",), ("exec", "--fork", "a")], ids=lambda verb: verb[0])
def test_an_inner_sandbox_that_fails_is_told(place: Place, verb: tuple[str, ...]) -> None:
    assert OTHER in said_of_nested(place, "other", verb)
