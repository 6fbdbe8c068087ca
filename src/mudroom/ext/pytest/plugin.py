"""A pytest plugin: each test that takes ``mudroom`` works in its own fork of the project.

    def test_it(mudroom):
        assert mudroom.run("make test").ok

The project is pytest's root directory. A fork is discarded after its test. With ``--mudroom-keep`` a failed test's fork
stays, and the report names it. If no test takes the fixture, the plugin does not open the project.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mudroom import api
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.api import ForkHandle, Room  # loads the library, which tests without the fixture do not need

_FAILED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("mudroom").addoption(
        "--mudroom-keep", action="store_true", help="keep the fork of a failed test that takes the fixture mudroom"
    )


@pytest.fixture(scope="session")
def mudroom_room(request: pytest.FixtureRequest) -> Iterator[Room]:
    """A room on pytest's root directory."""
    with api.open(request.config.rootpath) as room:
        yield room


@pytest.fixture
def mudroom(request: pytest.FixtureRequest, mudroom_room: Room) -> Iterator[ForkHandle]:
    """A new fork for one test."""
    fork = mudroom_room.fork()
    yield fork
    if request.config.getoption("--mudroom-keep") and request.node.stash.get(_FAILED, False):
        request.node.add_report_section("teardown", "mudroom", f"kept: mudroom diff {fork.name}")
        return
    if any(row.name == fork.name for row in mudroom_room.forks()):  # otherwise the test has applied or discarded it
        fork.discard()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report: pytest.TestReport = yield  # type: ignore[assignment]  # of pluggy: the hook's result is sent
    if report.when == "call" and report.failed:
        item.stash[_FAILED] = True
    return report  # type: ignore[return-value]
