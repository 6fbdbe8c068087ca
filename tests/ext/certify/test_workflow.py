"""``.github/workflows/platforms.yml``, as far as it can be run here: it is read, each path, extra, verb and option that
it names exists, and each of its lines runs with stand-ins for the programs of the other systems."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from mudroom.cli.main import VERBS, verb_parser

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / ".github/workflows/platforms.yml").read_text()
WORKFLOW = yaml.safe_load(TEXT)
SCRIPT = (ROOT / "dev/as-user.ps1").read_text()
STOOD_FOR = ("python", "python3", "sw_vers", "sysctl", "csrutil", "log", "pwsh", "sudo")
_STAND_IN = """#!/usr/bin/python3 -IS
import json, os, sys
with open({log!r}, "a") as log:
    log.write(json.dumps([os.path.basename(sys.argv[0]), *sys.argv[1:]]) + chr(10))
"""


def lines_of(job: dict[str, Any]) -> Iterator[str]:
    """Yield the lines that a job runs, once for each combination of the values of the matrix that they name."""
    matrix = job.get("strategy", {}).get("matrix", {})
    for step in job["steps"]:
        if "run" in step:
            names = [name for name in matrix if f"matrix.{name} " in step["run"]]
            for values in itertools.product(*(matrix[name] for name in names)):
                line = step["run"]
                for name, value in zip(names, values, strict=True):
                    line = line.replace("${{ matrix." + name + " }}", value)
                assert "${{" not in line, line
                yield line


def started(line: str, place: Path) -> list[list[str]]:
    """Return the commands of a line, as they would be started in a checkout."""
    programs, log = place / "bin", place / "log"
    programs.mkdir(exist_ok=True)
    for path in (*(programs / name for name in STOOD_FOR), place / ".venv/bin/python", place / "dev/wine"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_STAND_IN.format(log=str(log)))
        path.chmod(0o755)
    log.unlink(missing_ok=True)
    environment = {"PATH": f"{programs}:/usr/bin:/bin"}
    subprocess.run(["bash", "-e", "-c", line], cwd=place, env=environment, check=True, timeout=20)
    return [json.loads(row) for row in log.read_text().splitlines()]


def check(words: list[str]) -> None:
    """Assert that what a command names exists."""
    if words[0] == "pwsh":
        assert words[1] == "dev/as-user.ps1" and words[2] in ("user", "admin")
        return check(words[3:])
    if words[0] not in ("python", "python3"):
        assert words[0] in (*STOOD_FOR, "wine"), words
        return None
    assert words[1] == "-m", words
    module, *rest = words[2:]
    if module == "mudroom":
        assert rest[0] in VERBS
        verb_parser(rest[0]).parse_args(rest[1:])
    elif module == "pytest":
        paths = [word.removeprefix("--ignore=") for word in rest if "/" in word]
        assert paths
        for path in paths:
            assert (ROOT / path).exists(), path
    elif module == "pip":
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        named = [name for word in rest for name in re.findall(r"\[([\w,-]+)\]", word)]
        assert {name for group in named for name in group.split(",")} <= set(extras)
    else:
        assert module == "venv"
    return None


def test_each_line_of_the_workflow_runs_and_names_what_exists(tmp_path: Path) -> None:
    count = 0
    for job in WORKFLOW["jobs"].values():
        for line in lines_of(job):
            commands = started(line, tmp_path)
            assert commands, line
            for words in commands:
                check(words)
            count += 1
    assert count >= 10


def test_actions_are_pinned_and_say_their_release() -> None:
    used = [step["uses"] for job in WORKFLOW["jobs"].values() for step in job["steps"] if "uses" in step]
    assert used and all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", name) for name in used)
    assert len(re.findall(r"uses: actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$", TEXT, re.MULTILINE)) == len(used)
    assert len(set(used)) == len({name.partition("@")[0] for name in used}), "one commit of each action"


def test_the_workflow_may_only_read_and_ends() -> None:
    assert WORKFLOW["permissions"] == {"contents": "read"}
    for name, job in WORKFLOW["jobs"].items():
        assert 0 < job["timeout-minutes"] <= 60, name
        strange = re.search(r"\$\{\{(?! *matrix\.)", json.dumps(job))
        assert strange is None, "no text of a stranger in a line"
    assert set(WORKFLOW[True]) == {"push", "pull_request", "workflow_dispatch", "schedule"}  # YAML 1.1: on is true


def test_a_row_that_does_not_hold_fails_the_job() -> None:
    lines = list(lines_of(WORKFLOW["jobs"]["mac"]))
    (certify,) = [line for line in lines if "mudroom doctor --certify" in line]
    assert "||" not in certify
    uploads = [step for step in WORKFLOW["jobs"]["mac"]["steps"] if "upload-artifact" in step.get("uses", "")]
    assert [step["if"] for step in uploads] == ["always()"]
    assert "certificate.json" in uploads[0]["with"]["path"].split("\n")


def test_the_script_for_a_standard_user() -> None:
    """It has not run on Windows. What can be said of its text: it has no parameters of its own that would take the
    command's, it removes the account whatever happens, and blocks are closed."""
    code = re.sub(r"(?m)#.*$", "", SCRIPT)
    assert not re.search(r"(?i)\bparam\s*\(|CmdletBinding", code)
    for opening, closing in ("{}", "()", "[]"):
        assert code.count(opening) == code.count(closing)
    assert "Remove-LocalUser" in code.partition("} finally {")[2]
    assert os.access(ROOT / "dev/wine", os.X_OK)
