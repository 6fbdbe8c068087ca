"""Run by test_vendors.py where inspect-ai is installed: its self check of a sandbox environment, and an evaluation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from inspect_ai import eval_async, task_with
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import includes
from inspect_ai.util import OutputLimitExceededError
from inspect_ai.util._sandbox.limits import override_max_exec_output_size
from inspect_ai.util._sandbox.self_check import *  # noqa: F403
from vendor_project import run_of_page

import mudroom
from mudroom.ext.orchestra.inspect_ai import MudroomSandboxEnvironment

NOT_HERE = {
    "test_exec_as_user": "commands run as the user of the program",
    "test_exec_timeout_not_raised_on_fast_signal_death": "the policy asks about kill(1)",
}


async def opened(project: Path, **options: object) -> MudroomSandboxEnvironment:
    environments = await MudroomSandboxEnvironment.sample_init("check", {"project": str(project), **options}, {})
    environment = environments["default"]
    assert isinstance(environment, MudroomSandboxEnvironment)
    return environment


@pytest.fixture
async def sandbox_env(request: pytest.FixtureRequest, project: Path) -> AsyncIterator[MudroomSandboxEnvironment]:
    if request.node.originalname in NOT_HERE:
        request.applymarker(pytest.mark.xfail(strict=True, reason=NOT_HERE[request.node.originalname]))
    environment = await opened(project)
    yield environment
    await MudroomSandboxEnvironment.sample_cleanup("check", None, {"default": environment}, False)
    with mudroom.open(project) as room:
        assert room.forks() == []


async def test_an_evaluation_is_scored_and_keeps_its_forks(project: Path, tmp_path: Path) -> None:
    outputs = [
        ModelOutput.for_tool_call("mockllm/model", "bash", {"command": "echo 42 > answer; cat answer a.txt .env"}),
        ModelOutput.from_content("mockllm/model", "42"),
    ]
    for output in outputs:
        output.usage = ModelUsage()  # otherwise tokens are counted by a table that is downloaded
    task = run_of_page("inspect-ai", project, dataset=[Sample("write the answer", target="42")])["task"]
    logs = await eval_async(
        task_with(task, scorer=includes()),
        get_model("mockllm/model", custom_outputs=outputs),
        log_dir=str(tmp_path / "logs"),
    )
    assert logs[0].status == "success" and logs[0].results.scores[0].metrics["accuracy"].value == 1
    tool = next(message for message in logs[0].samples[0].messages if message.role == "tool")
    assert "42\nhello" in str(tool.content) and "TOKEN" not in str(tool.content)
    assert not (project / "answer").exists()
    with mudroom.open(project) as room:
        assert [room.changes(fork.name).paths for fork in room.forks()] == [["answer"]]


async def test_a_refusal_and_a_limit(project: Path) -> None:
    environment = await opened(project)
    refused = await environment.exec(["sudo", "ls"])
    assert (refused.returncode, refused.success) == (126, False) and "refused" in refused.stderr
    with override_max_exec_output_size(10), pytest.raises(OutputLimitExceededError):
        await environment.exec(["cat", "/etc/passwd"])
    await environment.close()


async def test_without_a_project_a_sample_begins_empty() -> None:
    environments = await MudroomSandboxEnvironment.sample_init("check", None, {})
    listed = await environments["default"].exec(["ls", "-A"])
    assert listed.stdout == ""
    await MudroomSandboxEnvironment.sample_cleanup("check", None, environments, False)
