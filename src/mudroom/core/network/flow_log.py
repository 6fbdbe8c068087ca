"""A command's flows, for its result and the journal: repeated refusals are one flow with a count.

Rules: pure. A refused request costs the command nothing, so it may repeat it as fast as it can for as long as it runs.
The first refusal with a given way, host, port and reason is kept whole; each further one adds to its ``repeats``.
``MOST_REFUSED`` different refusals are kept; all further ones are one flow without a host. No request is left out of
the total. Allowed requests are kept one by one, because each may have carried data; so are requests that were refused
after a part had been sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.network.flow import Flow

MOST_REFUSED = 512
"""Different refusals in one command that are flows of their own."""
_FURTHER = "more was refused than is listed one by one"

_Key = tuple[str, str, int, str]


class FlowLog:
    """Written by one thread; ``flows`` may be called by others."""

    def __init__(self) -> None:
        self._flows: list[Flow] = []
        self._places: dict[_Key, int] = {}
        """Each different refusal's position in ``_flows``."""

    def add(self, flow: Flow) -> None:
        # each of these may have carried data
        if flow.verdict != "deny" or flow.sent:
            self._flows.append(flow)
            return
        key: _Key = (flow.way, flow.host, flow.port, flow.reason)
        if key not in self._places and len(self._places) >= MOST_REFUSED:
            flow = Flow(flow.started, "raw", "", 0, "deny", "", _FURTHER, seconds=flow.seconds, repeats=flow.repeats)
            key = ("", "", 0, "")
        place = self._places.get(key)
        if place is None:
            self._places[key] = len(self._flows)
            self._flows.append(flow)
        else:
            self._flows[place] = _with(self._flows[place], flow)

    def flows(self) -> list[Flow]:
        """Return the flows until now, in the order in which each was first reported."""
        return list(self._flows)


def _with(first: Flow, flow: Flow) -> Flow:
    """Return a refusal's flow with a further equal refusal added."""
    lasted = max(first.seconds, (flow.started - first.started) / 1e9 + flow.seconds)
    return first._replace(repeats=first.repeats + 1 + flow.repeats, seconds=lasted)


def flows_since(before: Sequence[Flow], now: Sequence[Flow]) -> list[Flow]:
    """Return the flows in ``now`` that are new since ``before``, both from the same log. Repeats since then are a flow,
    too, with their number."""
    repeated = [
        flow._replace(repeats=flow.repeats - earlier.repeats - 1)
        for earlier, flow in zip(before, now, strict=False)
        if flow.repeats > earlier.repeats
    ]
    return [*repeated, *now[len(before) :]]
