"""The cookies that servers have set in responses to requests with the user's own credentials.

Rules of this file: a command may send these back to the host that has set them, and no others where a credential is
configured: a cookie that comes from elsewhere can be a stranger's session.
"""

from __future__ import annotations

from collections import OrderedDict

MOST = 1_024


class KnownCookies:
    """Used by the event loop of the gate's process alone. The least recently set are forgotten."""

    def __init__(self) -> None:
        self._pairs: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def learn(self, host: str, value: bytes) -> None:
        """``value``: of a ``Set-Cookie`` header (RFC 6265 4.1.1)."""
        self._pairs[host, value.partition(b";")[0].strip()] = None
        self._pairs.move_to_end((host, value.partition(b";")[0].strip()))
        if len(self._pairs) > MOST:
            self._pairs.popitem(last=False)

    def knows(self, host: str, pair: bytes) -> bool:
        return (host, pair) in self._pairs
