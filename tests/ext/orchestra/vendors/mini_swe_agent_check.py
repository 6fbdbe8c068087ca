"""Run by test_vendors.py where mini-swe-agent is installed: its agent, with its scripted model."""

from __future__ import annotations

from pathlib import Path

import pytest
from minisweagent.agents.default import DefaultAgent
from minisweagent.environments import get_environment
from minisweagent.models.test_models import DeterministicModel, make_output
from vendor_project import run_of_page

from mudroom.ext.orchestra.mini_swe_agent import MudroomEnvironment

DONE = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT; cat answer"


def environment(project: Path, **config: object) -> MudroomEnvironment:
    name = "mudroom.ext.orchestra.mini_swe_agent.MudroomEnvironment"
    made = get_environment({"environment_class": name, "project": str(project), **config})
    assert isinstance(made, MudroomEnvironment)
    return made


def test_an_agent_works_in_a_fork(project: Path) -> None:
    made = environment(project, env={"PAGER": "cat"})
    commands = ["echo $PAGER > answer; ls", "exit 3", DONE]
    model = DeterministicModel(outputs=[make_output("", [{"command": command}]) for command in commands])
    agent = DefaultAgent(
        model, made, system_template="{{system}}", instance_template="{{task}}", step_limit=9, cost_limit=9
    )
    result = agent.run("write the answer")
    assert (result["exit_status"], result["submission"]) == ("Submitted", "cat\n")
    assert "<returncode>3</returncode>" in str(agent.messages) or "'returncode': 3" in str(agent.messages)
    assert not (project / "answer").exists()
    assert made.workspace.apply().ok
    assert (project / "answer").read_text() == "cat\n"
    made.cleanup()


def test_no_variable_of_the_host_reaches_a_template(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-of-the-host")
    made = environment(project)
    assert "sk-of-the-host" not in str(made.get_template_vars())
    assert "sk-of-the-host" not in made.execute({"command": "env"})["output"]
    made.cleanup()


def test_time_and_bytes(project: Path) -> None:
    made = environment(project, timeout=1)
    ended = made.execute({"command": "echo a; sleep 60 & sleep 61"})
    assert (ended["output"], ended["returncode"], ended["extra"]["exception_type"]) == ("a\n", -1, "TimeoutExpired")
    assert "sleep 6" not in made.execute({"command": "ps ax | grep -v ps"})["output"]
    assert made.execute({"command": "printf '\\377'"})["output"] == "\ufffd"
    assert made.execute({"command": "sudo ls"})["returncode"] == 126
    made.cleanup()


def test_the_page(project: Path) -> None:
    commands = ["echo 42 > answer", DONE]
    model = DeterministicModel(outputs=[make_output("", [{"command": command}]) for command in commands])
    config = {"system_template": "", "instance_template": "{{task}}", "cost_limit": 9}
    names = run_of_page("mini-swe-agent", project, model=model, config=config, task="write the answer")
    assert "+42" in names["diff"]
