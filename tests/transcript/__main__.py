"""``python -m tests.transcript``: writes docs/evidence/TRANSCRIPT.md and DAY.md."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from transcript import day
from transcript.play import Stage, as_markdown
from transcript.project import make_project
from transcript.steps import STEPS

HEAD = """\
# An agent's session, from the first command to the last

Written by `python -m tests.transcript`, which plays it with the real command line; `tests/test_transcript.py` holds
every verdict and exit code in it. The agent is refactoring a small program. Each numbered command went through
`mudroom exec --fork refactor --agent coder -- bash -c LINE`; the line above it is the verdict, with its rule.

"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="mudroom-transcript-") as place:
        stage = Stage(Path(place))
        make_project(stage.project)
        text = HEAD + as_markdown([stage.play(step) for step in STEPS])
        days = [day.play(Path(place) / str(columns), columns) for columns in day.WIDTHS]
    evidence = Path(__file__).parents[2] / "docs/evidence"
    evidence.joinpath("TRANSCRIPT.md").write_text(text)
    evidence.joinpath("DAY.md").write_text(day.as_markdown(*days))


main()
