"""Best of n: several attempts side by side, each in a fork; the first whose tests pass is applied, the others are gone.

python best_of_n.py PROJECT "python3 -m unittest -q" "patch -p1 < a.diff" "patch -p1 < b.diff" …
"""

import asyncio
import sys

import mudroom


async def attempt(room: mudroom.AsyncRoom, name: str, command: str, test: str) -> str | None:
    """Return the fork if the command and the test succeed in it."""
    fork = await room.fork(name)
    for line in (command, test):
        result = await fork.run(line, timeout=600)
        if not result.ok:
            print(f"{name}: {line}: exit {result.exit_code}")
            return None
    return name


async def main(project: str, test: str, *commands: str) -> None:
    async with mudroom.aopen(project) as room:
        names = [f"try-{number}" for number in range(len(commands))]
        tries = (attempt(room, name, command, test) for name, command in zip(names, commands, strict=True))
        passed = [name for name in await asyncio.gather(*tries) if name is not None]
        if passed:
            print(await room.diff(passed[0]))
            applied = (await room.apply(passed[0], verify=test)).check()
            print(f"applied {passed[0]}: mudroom undo {applied.name} takes it back")
        left = {fork.name for fork in await room.forks()}
        await asyncio.gather(*(room.discard(name) for name in names if name in left))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
