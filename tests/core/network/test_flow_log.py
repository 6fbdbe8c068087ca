"""Refused requests are counted, not kept one by one, and none of them is lost from the total."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.network import flow_log
from mudroom.core.network.flow import Flow
from mudroom.core.network.flow_log import MOST_REFUSED, FlowLog, flows_since

REFUSED = Flow(1_000_000_000, "connect", "evil.example", 443, "deny", "", "no rule names it", seconds=0.5)
ALLOWED = REFUSED._replace(host="good.example", verdict="allow", reason="policy.yaml:3 allows it")


def logged(*flows: Flow) -> list[Flow]:
    log = FlowLog()
    for flow in flows:
        log.add(flow)
    return log.flows()


def test_ten_thousand_refusals_are_one_flow_with_their_number() -> None:
    flows = [REFUSED._replace(started=REFUSED.started + second * 10**9, path=f"/{second}") for second in range(10_000)]
    (flow,) = logged(*flows)
    assert (flow.repeats, flow.path, flow.started) == (9_999, "/0", REFUSED.started)
    assert flow.seconds == pytest.approx(9_999.5), "from the first to the end of the last"


def test_another_host_port_way_or_reason_is_another_refusal() -> None:
    others = [REFUSED._replace(host="b"), REFUSED._replace(port=80), REFUSED._replace(way="socks")]
    others.append(REFUSED._replace(reason="policy.yaml:1: evil.example denies it"))
    assert logged(REFUSED, *others, *others) == [REFUSED, *(flow._replace(repeats=1) for flow in others)]


def test_allowed_requests_are_kept_one_by_one() -> None:
    assert logged(ALLOWED, ALLOWED, ALLOWED) == [ALLOWED] * 3


def test_a_host_for_each_request_does_not_get_round_the_count() -> None:
    found = logged(*(REFUSED._replace(host=f"h{number}.example") for number in range(10_000)))
    assert len(found) == MOST_REFUSED + 1
    assert sum(1 + flow.repeats for flow in found) == 10_000
    assert (found[-1].host, found[-1].reason) == ("", "more was refused than is listed one by one")


FLOWS = st.builds(
    Flow,
    started=st.integers(0, 10**12),
    way=st.sampled_from(["connect", "dns"]),
    host=st.sampled_from("abcde"),
    port=st.sampled_from([0, 80]),
    verdict=st.sampled_from(["allow", "deny"]),
    rule=st.just(""),
    reason=st.sampled_from(["x", "y"]),
    sent=st.sampled_from([0, 0, 9]),
    repeats=st.sampled_from([0, 0, 3]),
)


@given(st.lists(FLOWS), st.integers(0, 60), st.integers(1, 8))
def test_the_total_is_that_of_the_requests(flows: list[Flow], cut: int, most: int) -> None:
    """Whole, and of the part since any moment."""

    def total(flows: list[Flow]) -> Counter[str]:
        counts: Counter[str] = Counter()
        for flow in flows:
            counts[flow.verdict] += 1 + flow.repeats
        return +counts

    patched = pytest.MonkeyPatch()
    patched.setattr(flow_log, "MOST_REFUSED", most)
    try:
        log = FlowLog()
        for flow in flows[:cut]:
            log.add(flow)
        before = log.flows()
        for flow in flows[cut:]:
            log.add(flow)
    finally:
        patched.undo()
    assert total(log.flows()) == total(flows)
    assert total(flows_since(before, log.flows())) == total(flows[cut:])
    assert sum(flow.verdict == "deny" and not flow.sent for flow in log.flows()) <= most + 1


def test_a_refusal_that_came_after_data_had_been_sent_is_a_flow_of_its_own() -> None:
    """A command can have a request refused in its last byte."""
    log = FlowLog()
    sent = [0, 5_000, 0, 7_000_000, 7_000_000]
    for length in sent:
        log.add(Flow(1, "https", "api.example", 443, "deny", "", "a placeholder is in the body", sent=length))
    assert [(flow.sent, flow.repeats) for flow in log.flows()] == [(0, 1), (5_000, 0), (7_000_000, 0), (7_000_000, 0)]
