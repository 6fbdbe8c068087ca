"""Runs lines in a sandbox of mudroom's, in batches, and returns what was observed of each."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mudroom.core.settings import Settings
from mudroom.session import Session

from .comparison import Observed, observed
from .harness import remove
from .world import MARKS

_HERE = Path(__file__).parent
SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
_CONSTRUCTOR = f"""
#include <fcntl.h>
#include <unistd.h>
__attribute__((constructor)) static void ran(void) {{ close(open("{MARKS}/so.evil.so", O_CREAT | O_WRONLY, 0600)); }}
int plugin_is_GPL_compatible = 1;
int onload(void *table) {{ return 0; }}
int main(void) {{ return 0; }}
"""


class Line(NamedTuple):
    program: str
    text: str
    terminal: bool = False
    """Whether it has a terminal: pagers do more there."""


class Ran(NamedTuple):
    line: Line
    seen: Observed


class Runner:
    """A throw-away project and a session on it. Used by one thread."""

    def __init__(self, path: str = SYSTEM_PATH, limit: float = 1.5, budget: float = 30) -> None:
        """``limit``: seconds for one line; ``budget``: for all lines of one program in a batch."""
        self.top = Path(tempfile.mkdtemp(prefix="mudroom-classes.", dir="/var/tmp"))
        for name in ("project", "home", "state"):
            (self.top / name).mkdir()
        project = self.top / "project"
        (project / "classes").mkdir()
        for name in ("__init__.py", "harness.py", "world.py"):
            shutil.copy(_HERE / name, project / "classes" / name)
        _compile(project)
        self._path, self._limit, self._budget = path, limit, budget
        self.count = 0  # owner: the caller's thread
        self.seconds = 0.0  # owner: the caller's thread

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_error: object) -> None:
        remove(str(self.top))  # an interruption and a killed launcher leave work directories of mode 0

    def run(self, lines: Sequence[Line]) -> Iterator[Ran]:
        """Yield the lines that had an effect, with what was observed."""
        began, at = time.monotonic(), 0
        while at < len(lines):
            batch = lines[at : at + 4000]
            told, reached, ended, count = self._batch(batch)
            self.count += count
            for number, seen in told.items():
                yield Ran(batch[number], observed(seen))
            if not ended:
                yield Ran(batch[reached], Observed(end="harness"))
            at += reached + 1
        self.seconds += time.monotonic() - began

    def output(self, lines: Sequence[str]) -> list[str]:
        """Return what lines print, for the help texts of programs. Each is run for its output alone."""
        script = "\n".join(f"timeout 3 {line} </dev/null 2>&1 | head -c 60000; printf '\\001'" for line in lines)
        environ = {**os.environb, b"PATH": self._path.encode()}
        with self._session(environ) as session:
            done = session.run([b"/bin/bash", b"-c", b"cd /tmp; " + script.encode()])
        return done.stdout.decode(errors="replace").split("\1")[: len(lines)]

    def _batch(self, batch: Sequence[Line]) -> tuple[Mapping[int, Mapping[str, object]], int, bool, int]:
        """Return what was observed by index, the last index that was started or left out, whether the harness came to
        its end, and how many lines were run."""
        project = self.top / "project"
        order = {
            "lines": batch, "path": self._path, "limit": self._limit, "budget": self._budget,
            "shared_object": str(project / "evil.so"),
        }  # fmt: skip
        (project / "order.json").write_text(json.dumps(order))
        with self._session(os.environb) as session:
            start = "import sys; sys.path.insert(0, '.'); from classes.harness import main; main()"
            command = [sys.executable, "-I", "-S", "-c", start, "order.json"]
            done = session.run([os.fsencode(word) for word in command])
        told: dict[int, Mapping[str, object]] = {}
        reached, ended, count = -1, False, 0
        for row in done.stdout.decode(errors="replace").split("\n"):
            if row.isdigit():
                reached = int(row)
                count += 1
            elif row == "skipped":
                reached += 1
            elif row.startswith("{"):
                told[reached] = json.loads(row)
            ended = ended or row == "done"
        if reached < 0 or b"Traceback" in done.stderr:
            raise RuntimeError(f"the harness failed at line {reached}: {done.exit_code} {done.stderr.decode()[-2000:]}")
        return told, reached, ended, count

    def _session(self, environ: Mapping[bytes, bytes]) -> Session:
        project, home, state = (os.fsencode(self.top / name) for name in ("project", "home", "state"))
        read = tuple(os.fsencode(place) for place in self._path.split(":") if place.startswith("/opt/"))
        settings = Settings(network="none", output_limit=64 * 1024 * 1024, read=read)
        return Session.open(project, state=state, home=home, environ=environ, settings=settings)


def _compile(project: Path) -> None:
    """Make ``evil.so``, which leaves a mark where it is loaded, if there is a compiler."""
    compiler = shutil.which("cc", path=SYSTEM_PATH)
    if compiler is None:
        return
    source = project / "evil.c"
    source.write_text(_CONSTRUCTOR)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", project / "evil.so", source], check=True, capture_output=True)
