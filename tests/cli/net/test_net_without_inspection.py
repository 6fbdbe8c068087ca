"""``mudroom net credential`` where nothing inspects TLS."""

from __future__ import annotations

import os
import subprocess
import sys

from net_cli import cli
from test_vault_verb import Cli

__all__ = ["cli"]  # fixture

PROGRAM = (
    "import os, sys; sys.modules['mudroom.ext.inspection'] = None;"
    "from mudroom.cli.main import run; sys.exit(run(sys.argv[1:], os.environb))"
)


def test_it_says_in_a_line_what_is_missing(cli: Cli) -> None:
    environment = {**cli.environment, "PYTHONPATH": os.pathsep.join(sys.path)}
    for words in ((), ("TOKEN", "api.example")):
        command = [sys.executable, "-c", PROGRAM, "net", "credential", *words]
        done = subprocess.run(
            command, cwd=cli.place.project, env=environment, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (125, "", 1), done
        assert "mudroom net credential is not part of this installation: it lacks mudroom/ext/inspection" in done.stderr
