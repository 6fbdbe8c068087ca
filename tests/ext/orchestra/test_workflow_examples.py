"""The examples for other tools: the GitHub action's script is run, the other files are read as those tools do."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import venv
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from conftest import Place
from house import ROOT

EXAMPLES = ROOT / "examples/workflow"


def reviewed(place: Place, command: str) -> tuple[str, str]:
    """Run the action's script. Return its outputs, and the text that is posted."""
    temporary = place.root / "runner"
    (temporary / "mudroom/bin").mkdir(parents=True, exist_ok=True)
    program = temporary / "mudroom/bin/mudroom"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m mudroom "$@"\n')
    program.chmod(0o755)
    output = temporary / "output"
    variables = {
        "PATH": os.environ["PATH"], "HOME": str(place.home), "RUNNER_TEMP": str(temporary), "COMMAND": command,
        "AGENT": "ci", "HOSTS": "example.com", "TIMEOUT": "1m", "GITHUB_OUTPUT": str(output), "CI": "1",
        "GITHUB_TOKEN": "ghs_writes", "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "ghs_writes",
    }  # fmt: skip
    script = EXAMPLES / "github/review-in-mudroom/review.sh"
    done = subprocess.run(
        ["bash", script], cwd=place.project, env=variables, capture_output=True, text=True, check=False, timeout=80
    )
    assert done.returncode == 0, done.stderr
    return output.read_text(), (temporary / "mudroom-review/review.md").read_text()


@pytest.mark.slow
def test_the_action_writes_a_review_and_nothing_lands(place: Place) -> None:
    place.write("a", "1\n")
    outputs, page = reviewed(place, "env; echo '````@everyone' > new; env | grep ghs_; exit 3")
    assert "exit-code=3\n" in outputs and "The command ended with 3" in page
    assert "+````@everyone" in page and "new" in page.partition("diff --git")[0]
    assert len(re.findall("^`{5}(?:diff)?$", page, re.MULTILINE)) == 4, "the agent's own fence ends nothing"
    review = place.root / "runner/mudroom-review"
    assert not any("ghs_writes" in path.read_text() for path in review.iterdir())
    assert sorted(path.name for path in Path(place.project).iterdir() if path.name != ".git") == ["a"]


@pytest.mark.slow
def test_the_action_says_why_a_command_was_refused(place: Place) -> None:
    outputs, page = reviewed(place, "sudo ls")
    assert "exit-code=126\n" in outputs and "refused: sudo ls: becomes another user" in page


def test_the_job_of_the_agent_has_no_token_that_writes() -> None:
    workflow = yaml.safe_load((EXAMPLES / "github/workflows/agent.yml").read_text())
    assert workflow["permissions"] == {}
    agent, post = workflow["jobs"]["agent"], workflow["jobs"]["post"]
    assert agent["permissions"] == {"contents": "read"}
    assert agent["steps"][0]["with"] == {"persist-credentials": False}
    assert not any("checkout" in step.get("uses", "") for step in post["steps"])
    used = [step["uses"] for job in (agent, post) for step in job["steps"] if "uses" in step]
    assert all(re.search(r"@[0-9a-f]{40}$", name) for name in used if not name.startswith("./"))
    action = yaml.safe_load((EXAMPLES / "github/review-in-mudroom/action.yml").read_text())
    assert not any("${{" in step["run"] for step in action["runs"]["steps"]), "an input is no part of a script"


def test_the_other_files_are_read() -> None:
    feature = json.loads((EXAMPLES / "devcontainer/src/mudroom/devcontainer-feature.json").read_text())
    assert feature["id"] == "mudroom"
    assert feature.keys() <= {"id", "version", "name", "description", "options", "securityOpt", "installsAfter"}
    subprocess.run(["sh", "-n", EXAMPLES / "devcontainer/src/mudroom/install.sh"], check=True)


def with_mudroom(place: Place) -> dict[str, str]:
    """Return an environment in which ``mudroom`` is this one."""
    program = place.root / "bin/mudroom"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m mudroom "$@"\n')
    program.chmod(0o755)
    paths = {"PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(place.home)}
    return {**paths, "MUDROOM_STATE": str(place.state)}


@pytest.mark.slow
def test_the_tasks_of_the_editor_run(place: Place) -> None:
    tasks = json.loads((EXAMPLES / "vscode/tasks.json").read_text())
    assert tasks["version"] == "2.0.0"
    inputs = {f"${{input:{row['id']}}}": "echo 42 > made" for row in tasks["inputs"] if row["type"] == "promptString"}
    variables = with_mudroom(place) | {"TERM": "xterm"}
    lines = []
    for task in tasks["tasks"]:
        assert task["type"] == "process" and task["label"]
        argv = [task["command"], *(inputs.get(word, word) for word in task["args"])]
        assert not any("${" in word for word in argv)
        lines.append(argv)
    runs, reviews = lines
    subprocess.run(runs, cwd=place.project, env=variables, check=True, capture_output=True, timeout=80)
    master, terminal = pty.openpty()
    with subprocess.Popen(
        reviews, cwd=place.project, env=variables, stdin=terminal, stdout=terminal, stderr=terminal, close_fds=True
    ) as review:
        os.close(terminal)
        shown = b""
        while b"made" not in shown:
            shown += os.read(master, 1 << 16)
        os.write(master, b"q")
        with suppress(OSError):  # EIO: it has ended (pty(7))
            while os.read(master, 1 << 16):
                pass
    os.close(master)
    assert review.returncode == 0
    assert not Path(place.project, "made").exists()


@pytest.mark.deep
@pytest.mark.network
@pytest.mark.limit(600)
def test_the_hook_of_pre_commit_refuses_a_commit_and_changes_nothing(place: Place, tmp_path: Path) -> None:
    tool = tmp_path / "venv/bin/pre-commit"
    venv.create(tmp_path / "venv", with_pip=True)
    subprocess.run(
        [tool.with_name("pip"), "install", "--quiet", "pre-commit==4.7.0"], check=True, stdin=subprocess.DEVNULL
    )
    variables = with_mudroom(place) | {"GIT_CONFIG_GLOBAL": "/dev/null"}

    def run(*argv: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(argv, cwd=place.project, env=variables, capture_output=True, text=True, check=False)

    place.write(".pre-commit-config.yaml", (EXAMPLES / "pre-commit/.pre-commit-config.yaml").read_text())
    place.write("Makefile", "test:\n\ttouch made\n\ttest ! -e bad\n")
    run("git", "init", "-q")
    run("git", "add", ".")
    assert run(tool, "install").returncode == 0
    commit = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "x")
    done = run(*commit)
    assert done.returncode == 0, done.stdout + done.stderr
    place.write("bad", "")
    run("git", "add", ".")
    refused = run(*commit)
    assert refused.returncode == 1 and "Failed" in refused.stdout + refused.stderr
    assert not Path(place.project, "made").exists()
