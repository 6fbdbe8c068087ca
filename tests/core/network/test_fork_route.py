"""The way of a connection between forks on several machines."""

from __future__ import annotations

from mudroom.core.network.fork_route import HERE, ForkRoute, caller_of, route

HOMES = {"planner": [HERE], "coder": ["w1"], "tester": ["w2"], "twin": ["w1", "w2"]}


def test_the_hub_knows_where_a_fork_runs() -> None:
    assert route("planner", HOMES) == ForkRoute(HERE)
    assert route("coder", HOMES) == ForkRoute("w1")
    assert route("coder", HOMES, "w2") == ForkRoute("w1")
    assert "no fork named nobody" in route("nobody", HOMES).reason
    assert "2 machines" in route("twin", HOMES).reason
    assert route("coder", HOMES, "w1").reason, "not back by the link that it came by"
    assert route("planner", HOMES, "w1") == ForkRoute(HERE)


def test_a_worker_sends_what_is_not_its_own_to_the_hub_and_routes_nothing_again() -> None:
    own = {"coder": [HERE]}
    assert route("coder", own, is_hub=False) == ForkRoute(HERE)
    assert route("planner", own, is_hub=False) == ForkRoute("origin")
    assert route("coder", own, "origin", is_hub=False) == ForkRoute(HERE)
    assert "no fork named planner" in route("planner", own, "origin", is_hub=False).reason


def test_a_worker_is_believed_about_its_own_forks_alone() -> None:
    assert caller_of("coder", "w1", HOMES) == "coder"
    for claimed, node in (("planner", "w1"), ("tester", "w1"), ("twin", "w1"), ("nobody", "w1"), ("", "w1")):
        assert caller_of(claimed, node, HOMES) == ""
