"""Every policy of the documents is used: a command runs under it, with control groups and without."""

from __future__ import annotations

import os

import pytest

from conftest import Place
from documents.block import Block, parts_of
from documents.machine import ROOT
from documents.play import documents
from mudroom.cli.main import run
from mudroom.sandbox.limits.cgroup import NoControlGroup
from mudroom.sandbox.limits.limiter import Limiter

POLICIES = [
    block
    for path in documents()
    for block in parts_of(path)
    if isinstance(block, Block)
    and block.language == "yaml"
    and block.note("not run") is None
    and block.note("file") in (None, ".mudroom/policy.yaml")
]
REFUSALS = {"missing: refuse": "mudroom: a limit of ", "level: 2": "mudroom: level 2 "}
"""Words of a policy that demand something of the machine, and the refusal of a machine that lacks it."""


def there(place: Place) -> dict[bytes, bytes]:
    values = {"HOME": place.home, "MUDROOM_STATE": place.state, "PATH": "/usr/bin:/bin", "MUDROOM_KEEPER": "0"}
    values |= {"MUDROOM_TRUST_POLICY": "1"}
    return {os.fsencode(name): os.fsencode(str(value)) for name, value in values.items()}


def test_the_documents_have_policies() -> None:
    assert {block.document.name for block in POLICIES} >= {"POLICY.md", "team-policy.md", "ci.md", "containers.md"}


def name_of(block: Block) -> str:
    return f"{block.document.relative_to(ROOT)}:{block.line}"


@pytest.mark.parametrize("block", POLICIES, ids=name_of)
@pytest.mark.parametrize("groups", ["as they are", "none"])
def test_a_command_runs_under_a_policy_of_the_documents(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], block: Block, groups: str
) -> None:
    def none(*_given: object) -> None:
        raise NoControlGroup("no control group is given to this user")

    if groups == "none":
        monkeypatch.setattr(Limiter, "_tree", none)
    place.write(".mudroom/policy.yaml", block.text)
    monkeypatch.chdir(place.project)
    code = run(["run", "--yes", "--", "true"], there(place))
    told = capfd.readouterr().err
    refusals = [message for words, message in REFUSALS.items() if words in block.text]
    assert code == 0 or (code == 125 and any(message in told for message in refusals)), told
    if code == 0:
        assert "true changed nothing" in told


def test_a_limit_that_a_policy_only_names_refuses_where_it_cannot_be_held(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What the how-to said, so that the test above would not pass with nothing to see."""

    def none(*_given: object) -> None:
        raise NoControlGroup("no control group is given to this user")

    monkeypatch.setattr(Limiter, "_tree", none)
    monkeypatch.chdir(place.project)
    place.write(".mudroom/policy.yaml", "limits: {memory: 4 GiB}\n")
    assert run(["run", "--yes", "--", "true"], there(place)) == 125
    assert "a limit of memory" in capfd.readouterr().err
    place.write(".mudroom/policy.yaml", "limits: {memory: 4 GiB, missing: degrade}\n")
    assert run(["run", "--yes", "--", "true"], there(place)) == 0
