"""``python -m documents.cast``: record docs/pictures/first-minute.svg, a terminal in which a real run is typed.

The picture is plain SVG with CSS animation: each line appears at its time, and stays. A viewer without animation, or
with ``prefers-reduced-motion``, shows the end.
"""

from __future__ import annotations

import re
import tempfile
from html import escape
from pathlib import Path
from typing import NamedTuple

from documents.machine import ROOT, Machine
from mudroom.stage.layers.layer import remove_tree

PICTURE = ROOT / "docs/pictures/first-minute.svg"
WIDTH, LINE, CHARACTER = 116, 19, 8.4
_STEP, _PAUSE = 0.25, 1.1
NAME = "run-4f2a91c0"
"""Of the fork, in place of its random name."""


class Shown(NamedTuple):
    text: str
    at: float
    """Seconds."""
    is_typed: bool


def record(root: Path) -> list[Shown]:
    """Run the story in a throw-away project and return its lines with their times."""
    machine = Machine(root)
    machine.new_project("todo")
    lines: list[Shown] = []
    at = 0.5

    def step(command: str, answers: list[str]) -> None:
        nonlocal at
        lines.append(Shown(f"$ {command}", at, True))
        at += _PAUSE
        for text in machine.run_at_terminal(command, answers).printed.rstrip("\n").split("\n"):
            lines.append(Shown(text, at, False))
            at += _STEP
        at += _PAUSE

    step("mudroom run -- sh ./upgrade.sh", ["k"])
    fork = re.findall(r"run-[0-9a-f]{8}", lines[-1].text)[0]
    step("cat README.md", [])
    step(f"mudroom apply --yes {fork} package.json", [])
    step("mudroom undo", [])
    return [line._replace(text=line.text.replace(fork, NAME)) for line in lines]


def as_svg(lines: list[Shown]) -> str:
    rows = [
        (line.text[start : start + WIDTH], line) for line in lines for start in range(0, max(len(line.text), 1), WIDTH)
    ]
    height, width = len(rows) * LINE + 40, round(WIDTH * CHARACTER) + 40
    texts = "\n".join(
        f'<text x="20" y="{20 + LINE * (number + 1)}" class="{"t" if line.is_typed else "o"}" '
        f'style="animation-delay:{line.at:.2f}s">{escape(text)}</text>'
        for number, (text, line) in enumerate(rows)
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img">
<title>A terminal: a script is run, its changes are shown and kept, one file is applied and taken back</title>
<style>
text {{ font: 14px ui-monospace, Menlo, Consolas, monospace; white-space: pre; fill: #c9d1d9; animation: a .01s both }}
.t {{ fill: #7ee787 }}
@keyframes a {{ from {{ opacity: 0 }} to {{ opacity: 1 }} }}
@media (prefers-reduced-motion: reduce) {{ text {{ animation: none }} }}
</style>
<rect width="100%" height="100%" rx="8" fill="#0d1117"/>
{texts}
</svg>
"""


if __name__ == "__main__":
    root = tempfile.mkdtemp(prefix="mudroom-docs.")
    PICTURE.write_text(as_svg(record(Path(root) / "d")))
    remove_tree(root.encode())
