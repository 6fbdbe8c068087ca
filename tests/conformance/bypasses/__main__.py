"""``python -m tests.conformance.bypasses``: all attempts in every way to confine a command, one table.

python -m tests.conformance.bypasses                  on the terminal
python -m tests.conformance.bypasses --only landlock  one of them, with how something got through
python -m tests.conformance.bypasses --write FILE     as docs/evidence/BYPASSES.md has it
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence

from .. import document  # noqa: TID252 - the package has another name inside
from ..attempt import Attempt  # noqa: TID252
from ..outside import Outcome, Outcomes, able, got_out  # noqa: TID252
from .attempt import ALLOWED, TABLE
from .outside import MODES, series

_MODES = {
    "control": ("no sandbox", "nothing confines it, and a proxy lets everything pass"),
    "overlay": ("overlay", "a network namespace, the project staged by an overlay"),
    "copy": ("copy", "a network namespace, the project staged by a copy"),
    "asked": ("overlay, asked", "as overlay, and whoever is asked says no"),
    "landlock": ("without namespaces", "Landlock and filters, as in a container's default profile"),
}


def lines(columns: Mapping[str, Outcomes]) -> Iterator[str]:
    """Yield the document."""
    yield from (
        "# Attempts to pass the gate",
        "",
        "What `python -m tests.conformance.bypasses` found: every attempt of `tests/conformance/bypasses`, each a",
        "small program that tries to reach what the gate does not let it reach, in every way in which commands are",
        "confined, and without any. The host is one of the test's own, with an internet of its own, in namespaces:",
        "whatever leaves it is seen there, packet by packet, and by that alone success is judged: a packet to an",
        "address or a port that nothing allows, something said that should not have been, or a name that was looked",
        "up. *No sandbox* has a proxy that lets everything pass; not every attempt is tried there, since some would",
        "change the host.",
        "",
        f"Those of the group *{ALLOWED}* are no attempts: they must arrive, but for captured connections without",
        "namespaces, where there are none. What is left of the others there goes to the proxy or nowhere.",
        "",
        "What this cannot show: who is let through to a host may say anything to it, in TLS and on ports that a rule",
        "names, so a host that passes things on (a proxy, a forge, a name server of its own) is a way out for as long",
        f"as it is allowed. What holds elsewhere is in {document.THREATS}.",
        "",
        document.made(),
        "",
    )
    yield from document.head(("confined by", "what that is", "got through", "of"))
    for mode, column in columns.items():
        tried = {name: outcome for name, outcome in column.items() if TABLE[name].group != ALLOWED}
        yield f"| {_MODES[mode][0]} | {_MODES[mode][1]} | {len(got_out(tried))} | {len(tried)} |"
    titled = {_MODES[mode][0]: column for mode, column in columns.items()}
    yield from document.table(TABLE, titled, "it got through", _cell)


def _cell(attempt: Attempt, outcome: Outcome | None) -> str:
    if outcome is None or attempt.group != ALLOWED:
        return document.cell(attempt, outcome)
    return "arrived" if outcome.evidence else "there is no such way"


def main(argv: Sequence[str]) -> int:
    args = document.parser("bypasses", "Who passes the gate.", list(_MODES)).parse_args(argv)
    columns = {}
    for mode in args.only or _MODES:
        found = series(mode, able(TABLE) if mode == "control" else None)
        columns[mode] = found.outcomes
        if found.strays and mode != "control":
            sys.stderr.write(f"{mode}: nobody's: {found.strays}\n")
    document.write(args, columns, lines(columns))
    return 0


assert set(_MODES) == set(MODES)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
