"""Run by test_vendors.py where swebench and mini-swe-agent are installed: their own code, on a prepared repository."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from minisweagent.models.test_models import make_output
from minisweagent.run.benchmarks import swebench as runs
from vendor_project import run_of_page

import mudroom
from mudroom.ext.orchestra.swebench import InstanceWorkspace, agent_runs, evaluate

WRONG, RIGHT = "def double(n):\n    return n + 2\n", "def double(n):\n    return n * 2\n"
TESTS = "from code_ import double\n\n\ndef test_two():\n    assert double(2) == 4\n"
MORE = TESTS + "\n\ndef test_three():\n    assert double(3) == 6\n"
EVAL = """#!/bin/bash
set -uxo pipefail
cd /testbed
git checkout HEAD test_code.py
git apply -v - <<'EOF_114329324912'
{patch}EOF_114329324912
: '>>>>> Start Test Output'
python3 run_tests.py
: '>>>>> End Test Output'
git checkout HEAD test_code.py
"""
RUNNER = """import sys, test_code
failed = 0
for name, test in sorted(vars(test_code).items()):
    if name.startswith("test_"):
        try:
            test()
            print("PASSED test_code.py::" + name)
        except AssertionError:
            failed = 1
            print("FAILED test_code.py::" + name)
sys.exit(failed)
"""
"""The prepared environment needs no pytest: the log is what ``pytest -rA`` prints."""
ID = "example__code-1"


def git(project: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    return subprocess.run(["git", *identity, *words], cwd=project, check=True, capture_output=True, text=True).stdout


def patch_of(project: Path, name: str, content: str) -> str:
    before = (project / name).read_text()
    (project / name).write_text(content)
    patch = git(project, "diff")
    (project / name).write_text(before)
    return patch


@pytest.fixture
def instance(tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return an instance whose repository is in ``tmp_path/prepared``; the current directory is ``tmp_path``."""
    monkeypatch.chdir(tmp_path)
    prepared = tmp_path / "prepared" / ID
    prepared.mkdir(parents=True)
    for name, content in {"code_.py": WRONG, "test_code.py": TESTS, "run_tests.py": RUNNER}.items():
        (prepared / name).write_text(content)
    git(prepared, "init", "-q")
    git(prepared, "add", ".")
    git(prepared, "commit", "-qm", "base")
    test_patch = patch_of(prepared, "test_code.py", MORE)
    made = {
        "repo": "example/code", "instance_id": ID, "base_commit": git(prepared, "rev-parse", "HEAD").strip(),
        "patch": patch_of(prepared, "code_.py", RIGHT), "test_patch": test_patch, "version": "1",
        "problem_statement": "double(3) is 5", "hints_text": "", "created_at": "", "image": "none",
        "FAIL_TO_PASS": json.dumps(["test_code.py::test_three"]),
        "PASS_TO_PASS": json.dumps(["test_code.py::test_two"]),
        "log_parser": "parse_log_pytest", "eval_type": "pass_and_fail", "eval_script": EVAL.format(patch=test_patch),
    }  # fmt: skip
    (tmp_path / "instances.json").write_text(json.dumps([made]))
    return made


def graded(tmp_path: Path, patch: str, run_id: str, **more: Any) -> dict[str, Any]:
    row = {"instance_id": ID, "model_name_or_path": "mine", "model_patch": patch}
    (tmp_path / "predictions.json").write_text(json.dumps([row]))
    report = evaluate("predictions.json", "instances.json", "prepared", run_id=run_id, **more)
    return dict(json.loads(report.read_text()))


def test_a_patch_is_graded(tmp_path: Path, instance: dict[str, Any]) -> None:
    state = git(tmp_path / "prepared" / ID, "status", "--porcelain")
    gold = json.loads(evaluate("gold", "instances.json", "prepared", run_id="gold").read_text())
    assert (gold["resolved_ids"], gold["error_ids"]) == ([ID], [])
    assert graded(tmp_path, "", "empty")["empty_patch_ids"] == [ID]
    wrong = instance["patch"].replace("n * 2", "n + 1")
    reported = graded(tmp_path, wrong, "wrong")
    assert (reported["unresolved_ids"], reported["resolved_ids"], reported["error_ids"]) == ([ID], [], [])
    assert graded(tmp_path, "no patch\n", "unreadable")["error_ids"] == [ID]
    log = tmp_path / "logs/run_evaluation/wrong/mine" / ID / "test_output.txt"
    assert "FAILED test_code.py::test_three" in log.read_text()
    assert git(tmp_path / "prepared" / ID, "status", "--porcelain") == state == ""


def test_time_and_an_absent_repository(tmp_path: Path, instance: dict[str, Any]) -> None:
    slow = instance["patch"].replace("    return n * 2", "    import time; time.sleep(99)")
    assert graded(tmp_path, slow, "slow", timeout=5)["error_ids"] == [ID]
    (tmp_path / "prepared" / ID).rename(tmp_path / "prepared/elsewhere")
    assert graded(tmp_path, instance["patch"], "absent")["error_ids"] == [ID]
    with pytest.raises(mudroom.UsageError, match="no prepared repository"):
        InstanceWorkspace("prepared", "../prepared/elsewhere")


def test_an_agent_writes_a_patch_that_is_graded(tmp_path: Path, instance: dict[str, Any]) -> None:
    submit = "git add -A; echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; git diff --cached"
    commands = ["pwd; ls /", "sed -i 's/n + 2/n * 2/' code_.py", "sudo ls", submit]
    outputs = [make_output("", [{"command": command}]) for command in commands]
    config = {
        "agent": {"system_template": "", "instance_template": "{{task}}", "step_limit": 9, "cost_limit": 9},
        "environment": {"cwd": "/testbed", "timeout": 60, "interpreter": ["bash", "-c"]},
        "model": {"model_class": "deterministic", "model_name": "scripted", "outputs": outputs},
    }
    (tmp_path / "out").mkdir()
    with agent_runs("prepared"):
        runs.process_instance(instance, tmp_path / "out", config, runs.RunBatchProgressManager(1))
    preds = json.loads((tmp_path / "out/preds.json").read_text())
    assert "+    return n * 2" in preds[ID]["model_patch"]
    trajectory = (tmp_path / "out" / ID / f"{ID}.traj.json").read_text()
    assert "/testbed" in trajectory and "sudo ls: becomes another user" in trajectory
    report = json.loads(evaluate("out/preds.json", "instances.json", "prepared", run_id="agent").read_text())
    assert report["resolved_ids"] == [ID]


def test_the_page(project: Path, instance: dict[str, Any]) -> None:
    assert run_of_page("SWE-bench", project)["resolved"] == [ID]
