"""Best of n: several attempts side by side, each in a fork; the first whose tests pass is applied, the others are gone.

python best_of_n.py PROJECT "python3 -m unittest -q" "patch -p1 < a.diff" "patch -p1 < b.diff" …
"""

import sys

import mudroom


def main(project: str, test: str, *commands: str) -> None:
    with mudroom.open(project) as room:
        with room.attempts(commands=commands, judge=test, until=1, timeout=600) as tried:
            for attempt in tried:
                print(f"{attempt.number}: {attempt.state}: exit {attempt.exit_code}, judge {attempt.judged}")
        best = tried.result.best
        if best is not None and best.fork:
            print(room.diff(best.fork))
            applied = room.apply(best.fork, verify=test).check()
            print(f"applied {best.fork}: mudroom undo {applied.name} takes it back")
        tried.discard(everything=True)


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) > 2 else sys.exit(__doc__)
