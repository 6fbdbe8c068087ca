"""``python -m tests.conformance.bypasses``: all attempts in every way to confine a command, one table.

python -m tests.conformance.bypasses                  on the terminal
python -m tests.conformance.bypasses --only landlock  one of them, with how something got through
python -m tests.conformance.bypasses --write FILE     as docs/evidence/BYPASSES.md has it
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_HERE = Path(__file__).parent
sys.path[:0] = [str(_HERE.parent.parent), str(_HERE.parent.parent.parent / "src")]

from conformance.bypasses.attempt import ALLOWED, TABLE, Attempt  # noqa: E402
from conformance.bypasses.outside import MODES, Outcome, able, series  # noqa: E402

Column = Mapping[str, Outcome]
_MODES = {
    "control": ("no sandbox", "nothing confines it, and a proxy lets everything pass"),
    "overlay": ("overlay", "a network namespace, the project staged by an overlay"),
    "copy": ("copy", "a network namespace, the project staged by a copy"),
    "asked": ("overlay, asked", "as overlay, and whoever is asked says no"),
    "landlock": ("without namespaces", "Landlock and filters, as in a container's default profile"),
}


def lines(columns: Mapping[str, Column]) -> list[str]:
    """The document."""
    found = [
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
        "as it is allowed. What holds elsewhere is in [THREATS.md](../THREATS.md).",
        "",
        f"{datetime.date.today().isoformat()}, Linux {platform.release()} {platform.machine()}, "
        f"as {'root' if os.geteuid() == 0 else 'an ordinary user'}.",
        "",
        "| confined by | what that is | got through | of |",
        "| --- | --- | --- | --- |",
    ]
    for mode, column in columns.items():
        tried = [outcome for name, outcome in column.items() if TABLE[name].group != ALLOWED]
        count = sum(bool(outcome.evidence) for outcome in tried)
        found.append(f"| {_MODES[mode][0]} | {_MODES[mode][1]} | {count} | {len(tried)} |")
    found += ["", "**out**: it got through. · it did not. - not tried.", ""]
    found += ["| attempt | what it tries | known from | " + " | ".join(_MODES[mode][0] for mode in columns) + " |"]
    found += ["| --- | --- | --- |" + " --- |" * len(columns)]
    for group in dict.fromkeys(attempt.group for attempt in TABLE.values()):
        found.append(f"| **{group}** | | |" + " |" * len(columns))
        for attempt in (one for one in TABLE.values() if one.group == group):
            cells = " | ".join(_cell(attempt, column.get(attempt.name)) for column in columns.values())
            tries = attempt.tries.replace("|", "\\|").replace("*", "\\*").replace("[", "\\[").replace("<", "\\<")
            found.append(f"| {attempt.name} | {tries} | {attempt.source.replace('*', chr(92) + '*')} | {cells} |")
    return found


def _cell(attempt: Attempt, outcome: Outcome | None) -> str:
    if outcome is None:
        return "-"
    if attempt.group == ALLOWED:
        return "arrived" if outcome.evidence else "there is no such way"
    return "**out**" if outcome.evidence else "·"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.bypasses", description="Who passes the gate.")
    parser.add_argument("--only", action="append", choices=list(_MODES), help="one way; repeatable")
    parser.add_argument("--write", metavar="FILE", help="write the table there")
    args = parser.parse_args(argv)
    columns: dict[str, Column] = {}
    for mode in _MODES:
        if not args.only or mode in args.only:
            found = series(mode, able() if mode == "control" else None)
            columns[mode] = found.outcomes
            if found.strays and mode != "control":
                sys.stderr.write(f"{mode}: nobody's: {found.strays}\n")
    text = "\n".join(lines(columns)) + "\n"
    if args.write:
        Path(args.write).write_text(text)
    else:
        sys.stdout.write(text)
    for mode in args.only or ():
        for outcome in columns[mode].values():
            if outcome.evidence:
                sys.stdout.write(f"{mode}: {outcome.name}: {outcome.evidence[:200]}\n")
    return 0


assert set(_MODES) == set(MODES)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
