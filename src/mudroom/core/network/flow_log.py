"""The flows of one command as they are kept and journalled: what was refused again and again is one flow with a count.

Rules of this file: pure. A refused request costs the command nothing, so it may repeat it as fast as it can for as long
as it runs. The first refusal of a way, host, port and reason is kept whole; each further one adds to its ``repeats``.
Of different refusals ``MOST_REFUSED`` are kept; all further ones are one flow without a host. No request is left out of
the total. Allowed requests are kept one by one: each may have carried data; so are those that were refused when a part
had been sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.network.flow import Flow

MOST_REFUSED = 512
"""Different refusals of one command that are flows of their own."""
_FURTHER = "more was refused than is listed one by one"

_Key = tuple[str, str, int, str]


class FlowLog:
    """Written by one thread; ``flows`` may be called by others."""

    def __init__(self) -> None:
        self._flows: list[Flow] = []
        self._places: dict[_Key, int] = {}
        """The position of each different refusal."""

    def add(self, flow: Flow) -> None:
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
    """Return the flow of a refusal with a further one that is like it."""
    lasted = max(first.seconds, (flow.started - first.started) / 1e9 + flow.seconds)
    return first._replace(repeats=first.repeats + 1 + flow.repeats, seconds=lasted)


def flows_since(before: Sequence[Flow], now: Sequence[Flow]) -> list[Flow]:
    """Return the flows of ``now`` that are new since ``before``, both of the same log: repeats since then are a flow,
    too, with their number."""
    repeated = [
        flow._replace(repeats=flow.repeats - earlier.repeats - 1)
        for earlier, flow in zip(before, now, strict=False)
        if flow.repeats > earlier.repeats
    ]
    return [*repeated, *now[len(before) :]]
