"""The fsspec file system made by the name of a fork: a process that writes through it, and what others see of that."""

from __future__ import annotations

import subprocess
import sys

from conftest import Place
from satellites import needs
from test_vault_verb import Cli

WRITES = """
import sys
from mudroom.ext.fsspec.filesystem import MudroomFileSystem
fork, project = sys.argv[1:]
with MudroomFileSystem(fork, project).open("a/b", "wb") as stream:
    stream.write(b"in a block\\n")
del stream
kept = MudroomFileSystem(fork, project)
kept.pipe("c", b"kept to the end\\n")
if kept.cat("a/b") != b"in a block\\n":
    sys.exit("what the first one wrote is not there")
"""


@needs("fsspec")
def test_what_was_written_by_name_outlives_the_process(place: Place) -> None:
    place.session().forks.new("x")
    cli = Cli(place)
    words = [sys.executable, "-c", WRITES, "x", str(place.project)]
    done = subprocess.run(words, env=cli.environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert {one["path"] for one in cli.json("diff", "x")["changes"]["files"]} == {"a/b", "c"}
