"""What becomes of each verb if the machine is started again after it, or loses power during it or at its end.

    PYTHONPATH=tests:tests/reboot:tests/systems python tests/reboot/cuts.py --keep DIRECTORY [KIND…]
    … [--user USER] [--verb VERB]

writes docs/evidence/POWER.md. No test is here: test_power_cut.py has them.

The disk logs its writes and flushes (``block_log.py``). It is made as it may be found if power fails behind any of
them: with all writes, or with any of those since the last flush. The journal of the file system is replayed, the
machine has another boot, and the state is compared with that before the verb and after it:

held    as before the verb, or as after it; as after it if the verb had ended
told    something else is found, and the user is told what
earlier of a command that has not reported, or was not on disk: an earlier state of its fork, as docs/FORMAT.md says
lost    something else is found, and nothing is said
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from remounted import HERE, KINDS, Remounted, remounted
from tiers import SEED

State = dict[str, Any]
Moment = Literal["remount", "middle", "end"]
Verdict = Literal["held", "told", "earlier", "lost"]
MOMENTS: tuple[Moment, ...] = ("remount", "middle", "end")
_MOST = 2
"""Cuts in the middle of one verb, each time that it runs."""
SCRIPT = """
set -e
echo more >> edited; rm gone; rm -r d
mkdir -p new/deep; echo n > new/deep/n; echo s > single
mv moved there; chmod 755 mode
"""
VERBS: dict[str, tuple[str, ...]] = {
    "exec, new fork": ("exec", "--fork", "n", "--", "sh", "-c", SCRIPT),
    "exec": ("exec", "--fork", "b", "--", "sh", "-c", "echo 3 > third; rm second; echo 4 >> edited"),
    "exec, copy": ("exec", "--view", "copy", "--fork", "b", "--", "sh", "-c", "echo 3 > third; rm second"),
    "fork new": ("fork", "new", "n"),
    "fork new, of a fork": ("fork", "new", "n", "--from", "b"),
    "fork rename": ("fork", "rename", "a", "renamed"),
    "checkpoint": ("checkpoint", "second", "--fork", "b"),
    "rollback": ("rollback", "--fork", "b", "point", "--yes"),
    "checkpoint, copy": ("checkpoint", "second", "--fork", "b"),
    "rollback, copy": ("rollback", "--fork", "b", "point", "--yes"),
    "comment": ("comment", "b", "second", "why?"),
    "discard": ("discard", "a", "--yes"),
    "resolve": ("resolve", "c", "--theirs", "--all"),
    "apply": ("apply", "a", "--yes"),
    "undo": ("undo", "u1", "--yes"),
    "redo": ("redo", "u2", "--yes"),
    "vault export": ("vault", "export", "a", "/mnt/home/out.tar"),
    "vault import": ("vault", "import", "/mnt/home/a.tar", "imported"),
    "vault gc": ("vault", "gc", "--forks", "1s", "--yes"),
    "try": ("try", "-n", "2", "--", "sh", "-c", "echo try > tried"),
}


PRELUDE = (
    ("exec", "--fork", "a", "--", "sh", "-c", "echo 9 > ninth; rm single; echo 9 >> edited"),
    ("exec", "--fork", "b", "--", "sh", "-c", "echo 9 > ninth; mkdir z; echo 9 > z/z; echo 9 >> second"),
)
"""Commands before each verb: what they write is not synced yet."""
IN_COPY = ("--view", "copy")
OWN = {
    "checkpoint": "b",
    "rollback": "b",
    "checkpoint, copy": "b",
    "rollback, copy": "b",
    "fork rename": "a",
    "comment": "b",
    "discard": "a",
    "apply": "a",
}
"""The fork that a verb makes durable."""
DOCUMENT = HERE.parents[1] / "docs/evidence/POWER.md"
HEAD = """# Remounts and power cuts

Made by

    PYTHONPATH=tests:tests/reboot:tests/systems python tests/reboot/cuts.py --keep DIRECTORY \\
        ext4 xfs btrfs overlayfs bindfs

as root; `--user USER` runs mudroom as another user.

Each verb runs in a project whose state is on the same file system, after two commands in its forks whose files are not
synced yet. *remount*: it is unmounted after the verb, and mounted with another device number. *middle*, *end*: the disk
logs each write and each flush, and is made again as it may be found if power fails behind one of them, drawn by
MUDROOM_SEED, or when the verb has ended: with all writes in their order, and with any of those since the last flush. It
is mounted, its journal is replayed, and the machine counts as started anew. Each verb runs twice, once while everything
is synced all the time. An overlay and bindfs stand on ext4; a cell is empty if the verb was not tried there. *copy*:
the fork works in a copy of the project, as it always does on overlayfs and bindfs.

- held: all is as before the verb or as after it; as after it if the verb had ended
- told: something else is found, and the user is told what
- earlier: a fork is as it was before a command, because what a command writes is in the page cache
  ([FORMAT.md](../FORMAT.md#power-loss)), or before a verb that has not ended
- lost: something else is found, and nothing is said

What this costs: `exec --view copy` in a project of 2,000 files calls syncfs(2) twice and fsync(2) three times when it
makes the copy, and five times before each later command, however many files there are; a command in an overlay calls
fsync(2) once or twice, and no syncfs(2). On ext4, on a busy machine, that was 0.09 to 0.15 s at first and 0.04 to 0.11
s later.

"""
COMMANDS = ("exec", "exec, new fork", "exec, copy", "fork new", "fork new, of a fork", "try")
"""What they write is in the page cache until an apply."""


class Cut(NamedTuple):
    verb: str
    moment: Moment
    verdict: Verdict
    text: str = ""


def fill(project: Path) -> None:
    lines = "".join(f"{number}\n" for number in range(50))
    for name in ("edited", "gone", "d/a", "d/b/c", "moved", "mode", "untouched", "both", "first", "again"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(lines + name)


def prepare(ground: Remounted) -> State:
    """Make the forks and applies that the verbs work on, let all of it be durable, and look."""
    fill(ground.project)
    if ground.user:
        for path in (ground.project, *ground.project.rglob("*")):
            os.chown(path, *ground.ids)
    ground.succeed("exec", "--fork", "one", "--", "sh", "-c", "echo 1 >> first; echo n > first.new")
    ground.succeed("apply", "one", "--yes")
    ground.succeed("exec", "--fork", "two", "--", "sh", "-c", "echo 2 >> again; echo n > again.new")
    ground.succeed("apply", "two", "--yes")
    ground.succeed("undo", "--yes")
    ground.succeed("exec", "--fork", "a", "--", "sh", "-c", SCRIPT)
    ground.succeed("exec", "--fork", "b", "--", "sh", "-c", "echo p > pointed; rm mode")
    ground.succeed("checkpoint", "point", "--fork", "b")
    ground.succeed("exec", "--fork", "b", "--", "sh", "-c", "echo 2 > second; echo 2 >> edited")
    ground.succeed("exec", "--fork", "c", "--", "sh", "-c", "echo theirs > both")
    ground.succeed("exec", "--", "sh", "-c", "echo unnamed > unnamed")
    (ground.project / "both").write_text("ours\n")
    ground.succeed("vault", "export", "a", "/mnt/home/a.tar")
    found = ground.look()
    ground.keep("start")
    return found


def play(ground: Remounted, before: State, verb: str, most: int = _MOST) -> Iterator[Cut]:
    """Do the verb, cut it, and look; and do it again while the kernel writes everything. ``most``: so often in its
    middle, each time."""
    draw = random.Random(f"{SEED} {verb}")
    for is_synced in (False, True):
        place = ground.restore("start")
        for words in PRELUDE:
            ground.succeed(*words[:3], *(IN_COPY if "copy" in verb else ()), *words[3:])
        begun = ground.look()
        start = ground.written()
        ground.begin("mudroom", *VERBS[verb])
        while is_synced and ground.is_running():
            ground.flush()
        ended = ground.ended()
        assert ended.code == 0, (verb, ended)
        end = ground.written()
        after = ground.look()
        if not is_synced:
            ground.remount()
            yield judge(verb, "remount", begun, after, ground.look(another=True))
        for moment, cut, mixed in moments(ground, start, end, most, draw):
            ground.crash("cut", "start", place, cut, draw if mixed else None)
            ground.restore("cut")
            yield judged(ground, verb, moment, begun, after, before)


def moments(
    ground: Remounted, start: int, end: int, most: int, draw: random.Random
) -> Iterator[tuple[Moment, int, bool]]:
    """Yield places of the log at which power is cut, and whether the writes since the last flush are mixed."""
    places = ground.places(start, end)[:-1]
    for number, cut in enumerate(sorted(draw.sample(places, min(most, len(places))))):
        yield "middle", cut, number % 2 == 0
    yield "end", end, False
    yield "end", end, True


def judged(
    ground: Remounted, verb: str, moment: Moment, before: State, after: State, synced: State | None = None
) -> Cut:
    try:
        return judge(verb, moment, before, after, ground.look(another=True), synced)
    except AssertionError as error:
        return Cut(verb, moment, "lost", f"nothing can be read: {error}")


def judge(verb: str, moment: Moment, before: State, after: State, found: State, synced: State | None = None) -> Cut:
    """``synced``: before commands whose writes were in the page cache; None: there were none."""
    has_ended = moment != "middle"
    damaged = [text for text in found["problems"] if text not in after["problems"]]
    told: list[str] = []
    earlier: list[str] = []
    lost = [
        f"{part}: {_difference(found[part], after[part])}"
        for part in ("project", "applies", "archives", "tries", "journal")
        if found[part] != after[part] and (has_ended or found[part] != before[part])
    ]
    for name in sorted({*before["forks"], *after["forks"], *found["forks"]}):
        now, new, old, first = (
            state["forks"].get(name) if state is not None else None for state in (found, after, before, synced)
        )
        if now == new or (now == old and not has_ended):
            continue
        is_cached = moment != "remount" and (verb in COMMANDS or (synced is not None and OWN.get(verb) != name))
        may_be_earlier = is_cached or (not has_ended and synced is not None)
        if may_be_earlier and now in (old, first):
            earlier.append(name)
        elif now is not None and ("error" in now or now["told"]):
            text = now.get("error") or now["told"][0]
            (told if may_be_earlier else lost).append(f"{name}: {text}")
        elif may_be_earlier and (not has_ended or (old is None and now is not None and not now.get("changes"))):
            earlier.append(name)
        else:
            lost.append(f"{name}: {_difference(now, new)}")
    names = [text for text in damaged if moment != "end" or verb in COMMANDS or f"fork {OWN.get(verb)}:" not in text]
    told += names
    lost += [text for text in damaged if text not in names]
    verdict: Verdict = "lost" if lost else "told" if told else "earlier" if earlier else "held"
    return Cut(verb, moment, verdict, "; ".join([*lost, *told]))


def _difference(found: Any, wanted: Any) -> str:
    if isinstance(found, dict) and isinstance(wanted, dict):
        keys = sorted(key for key in {*found, *wanted} if found.get(key) != wanted.get(key))
        return ", ".join(f"{key} is {found.get(key)}, not {wanted.get(key)}" for key in keys[:3])
    return f"{found}, not {wanted}"


def table(cuts: dict[str, list[Cut]]) -> str:
    kinds = list(cuts)
    lines = ["| verb | moment | " + " | ".join(kinds) + " |", "| --- | --- |" + " --- |" * len(kinds)]
    for verb in VERBS:
        for moment in MOMENTS:
            cells = []
            for kind in kinds:
                count = Counter(cut.verdict for cut in cuts[kind] if (cut.verb, cut.moment) == (verb, moment))
                cells.append(
                    ", ".join(
                        f"{count[verdict]} {verdict}"
                        for verdict in ("held", "told", "earlier", "lost")
                        if count[verdict]
                    )
                )
            lines.append(f"| {verb} | {moment} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def examined(kind: str, verbs: Iterable[str], user: str) -> Iterator[Cut]:
    with tempfile.TemporaryDirectory() as base, remounted(Path(base), kind, user) as ground:
        before = prepare(ground)
        for verb in verbs:
            yield from play(ground, before, verb)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--user", default="")
    parser.add_argument("--keep", type=Path, help="a directory with the cuts of earlier runs, which these replace")
    parser.add_argument("--verb", action="append", choices=VERBS)
    parser.add_argument("kinds", nargs="*")
    given = parser.parse_args()
    given.keep.mkdir(exist_ok=True)
    cuts: dict[str, list[Cut]] = {}
    for kind in KINDS:
        kept = given.keep / f"{kind}.json"
        cuts[kind] = [Cut(*cut) for cut in json.loads(kept.read_text())] if kept.exists() else []
        for verb in given.verb or VERBS if kind in given.kinds else ():
            cuts[kind] = [cut for cut in cuts[kind] if cut.verb != verb]
        if kind in given.kinds:
            for cut in examined(kind, given.verb or VERBS, given.user):
                cuts[kind].append(cut)
                kept.write_text(json.dumps(cuts[kind]))
                if cut.verdict != "held":
                    sys.stderr.write(f"{kind} {cut}\n")
    DOCUMENT.write_text(HEAD + table(cuts) + "\n")


if __name__ == "__main__":
    main()
