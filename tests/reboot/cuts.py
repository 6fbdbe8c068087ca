"""What becomes of each verb if the machine is started again after it, or loses power during it or at its end.

    PYTHONPATH=tests/reboot:tests python tests/reboot/cuts.py --keep DIRECTORY [--user USER] [--verb VERB] [KIND…]

writes docs/evidence/POWER.md. No test is here: test_power_cut.py has them.

Power is cut by a clone of the file system's image while the verb runs (``remounted.py``). The journal of the file
system is replayed, the machine has another boot, and the state is compared with that before the verb and after it:

held    as before the verb, or as after it; as after it if the verb had ended
told    something else is found, and the user is told what
earlier of a command that has not reported, or was not on disk: an earlier state of its fork, as docs/FORMAT.md says
lost    something else is found, and nothing is said
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

from remounted import KINDS, Remounted, remounted

State = dict[str, Any]
Moment = Literal["remount", "middle", "end"]
Verdict = Literal["held", "told", "earlier", "lost"]
MOMENTS: tuple[Moment, ...] = ("remount", "middle", "end")
_HERE = Path(__file__).resolve().parent
_MOST = 3
"""Cuts in the middle of one verb."""
_APART = 0.03
"""Seconds between two of them."""
SCRIPT = """
set -e
echo more >> edited; rm gone; rm -r d
mkdir -p new/deep; echo n > new/deep/n; echo s > single
mv moved there; chmod 755 mode
"""
VERBS: dict[str, tuple[str, ...]] = {
    "exec, new fork": ("exec", "--fork", "n", "--", "sh", "-c", SCRIPT),
    "exec": ("exec", "--fork", "b", "--", "sh", "-c", "echo 3 > third; rm second; echo 4 >> edited"),
    "fork new": ("fork", "new", "n"),
    "fork rename": ("fork", "rename", "a", "renamed"),
    "checkpoint": ("checkpoint", "second", "--fork", "b"),
    "rollback": ("rollback", "--fork", "b", "point", "--yes"),
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


DOCUMENT = _HERE.parents[1] / "docs/evidence/POWER.md"
HEAD = """# Remounts and power cuts

Made by `PYTHONPATH=tests/reboot:tests python tests/reboot/cuts.py --keep DIRECTORY ext4 xfs btrfs overlayfs bindfs`,
as root; `--user USER` runs mudroom as another user.

Each verb runs in a project whose state is on the same file system. *remount*: it is unmounted after the verb, and
mounted with another device number. *middle*, *end*: the image is cloned by reflink while the verb runs, or when its
process has ended; the clone is mounted, its journal is replayed, and the machine counts as started anew. An overlay and
bindfs stand on ext4; a cell is empty if the verb was not tried there.

- held: all is as before the verb or as after it; as after it if the verb had ended
- told: something else is found, and the user is told what
- earlier: of a command: its fork is as it was before, because what a command writes is in the page cache
  ([FORMAT.md](../FORMAT.md#power-loss))
- lost: something else is found, and nothing is said

"""
COMMANDS = ("exec", "exec, new fork", "fork new", "try")
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


def prepare(ground: Remounted) -> None:
    """Make the forks and applies that the verbs work on, and let all of it be durable."""
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
    look(ground)
    ground.flush()
    ground.clone("start")


def look(ground: Remounted, *, another: bool = False) -> State:
    words = ("/mnt/project", "/mnt/state", "/mnt/home", *(["another"] if another else []))
    ended = ground.python(_HERE / "observe.py", *words)
    assert ended.returncode == 0, ended.stderr[-2000:]
    found: State = json.loads(ended.stdout)
    return found


def play(ground: Remounted, verb: str, most: int = _MOST) -> Iterator[Cut]:
    """Do the verb, cut it, and look. ``most``: so often in its middle, every second time after the kernel has
    written everything."""
    ground.clone("now", "start")
    ground.restore("now")
    before = look(ground)
    ground.flush()
    cuts, seen = 0, 0
    with ground.start("-m", "mudroom", *VERBS[verb]) as process:
        while process.poll() is None:
            if cuts % 2:
                ground.flush()
            if cuts < most and ground.written() != seen:
                seen = ground.written()
                ground.clone(f"middle{cuts}")
                cuts += 1
            time.sleep(_APART)
        ground.clone("end")
        out, err = process.communicate()
    assert process.returncode == 0, (verb, process.returncode, out, err)
    after = look(ground)
    ground.remount()
    yield judge(verb, "remount", before, after, look(ground, another=True))
    for number in range(cuts):
        ground.restore(f"middle{number}")
        yield judged(ground, verb, "middle", before, after)
    ground.restore("end")
    yield judged(ground, verb, "end", before, after)


def judged(ground: Remounted, verb: str, moment: Moment, before: State, after: State) -> Cut:
    try:
        return judge(verb, moment, before, after, look(ground, another=True))
    except AssertionError as error:
        return Cut(verb, moment, "lost", f"nothing can be read: {error}")


def judge(verb: str, moment: Moment, before: State, after: State, found: State) -> Cut:
    has_ended = moment != "middle"
    told: list[str] = []
    earlier: list[str] = []
    lost = [
        f"{part}: {_difference(found[part], after[part])}"
        for part in ("project", "applies", "archives", "tries", "journal", "problems")
        if found[part] != after[part] and (has_ended or found[part] != before[part])
    ]
    for name in sorted({*before["forks"], *after["forks"], *found["forks"]}):
        now, new, old = (state["forks"].get(name) for state in (found, after, before))
        if now == new or (now == old and not has_ended):
            continue
        if verb in COMMANDS and (
            now == old or not has_ended or (old is None and now is not None and not now.get("changes"))
        ):
            earlier.append(name)
        elif now is not None and ("error" in now or now["told"]):
            told.append(f"{name}: {now.get('error') or now['told'][0]}")
        else:
            lost.append(f"{name}: {_difference(now, new)}")
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
        prepare(ground)
        for verb in verbs:
            yield from play(ground, verb)


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
