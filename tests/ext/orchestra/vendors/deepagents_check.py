"""Run by test_vendors.py where deepagents is installed: LangChain's standard tests of a sandbox, and an agent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_tests.integration_tests import SandboxIntegrationTests
from vendor_project import run_of_page

from mudroom.ext.orchestra.deepagents import MudroomSandbox

OF_AN_OLDER_DEEPAGENTS = (
    "test_glob", "test_glob_basic_pattern", "test_glob_with_directories", "test_glob_hidden_files_explicitly",
    "test_glob_with_character_class", "test_glob_with_question_mark", "test_write_existing_file_fails",
)  # fmt: skip
"""langchain-tests 1.1.9 expects relative paths of glob, and an error for a file that exists; deepagents 0.7.32 says
that paths are absolute, and that write replaces. They fail with a plain subprocess for a sandbox, too."""


class TestSandbox(SandboxIntegrationTests):  # type: ignore[misc]
    @pytest.fixture(scope="class")
    def sandbox(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MudroomSandbox]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MUDROOM_STATE", str(tmp_path_factory.mktemp("state")))
            patch.delenv("PYTHONUNBUFFERED", raising=False)
            with MudroomSandbox(tmp_path_factory.mktemp("proj")) as sandbox:
                yield sandbox

    @pytest.fixture(autouse=True)
    def expected(self, request: pytest.FixtureRequest) -> None:
        if request.node.name in OF_AN_OLDER_DEEPAGENTS:
            request.applymarker(pytest.mark.xfail(strict=True, reason="langchain-tests is older than deepagents"))


class Scripted(GenericFakeChatModel):  # type: ignore[misc]
    def bind_tools(self, _tools: Any, **_options: Any) -> Scripted:
        return self


def test_an_agent_works_in_a_fork(project: Path) -> None:
    def call(name: str, **arguments: Any) -> AIMessage:
        return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": name}])

    messages = iter([
        call("write_file", file_path=f"{project}/answer", content="42"),
        call("execute", command="cat answer .env; pwd; sudo ls"),
        AIMessage("done"),
    ])  # fmt: skip
    with MudroomSandbox(project) as sandbox:
        agent = create_deep_agent(model=Scripted(messages=messages), backend=sandbox)
        said = str(agent.invoke({"messages": [{"role": "user", "content": "write the answer"}]}))
        assert "sudo ls: becomes another user; refused" in said and "TOKEN" not in said
        assert not (project / "answer").exists()
        assert sandbox.workspace.changes().paths == ["answer"]
        assert sandbox.workspace.apply().ok
    assert (project / "answer").read_text() == "42"


async def test_errors_are_codes(project: Path) -> None:
    with MudroomSandbox(project) as sandbox:
        uploads = [("relative", b""), ("/etc/x", b""), (str(project), b""), (f"{project}/a.txt/b", b"")]
        codes = [response.error for response in await sandbox.aupload_files(uploads)]
        assert codes == ["invalid_path", "permission_denied", "is_directory", "invalid_path"]
        assert sandbox.download_files([f"{project}/nope"])[0].error == "file_not_found"
        ended = await sandbox.aexecute("sleep 60 & sleep 61", timeout=1)
        assert (ended.exit_code, ended.output) == (124, "\nthe command ran out of time")


def test_the_page(project: Path) -> None:
    call = {"name": "write_file", "args": {"file_path": f"{project}/answer", "content": "42"}, "id": "1"}
    model = Scripted(messages=iter([AIMessage("", tool_calls=[call]), AIMessage("done")]))
    assert "+42" in run_of_page("deepagents", project, model=model, task="write the answer")["diff"]
