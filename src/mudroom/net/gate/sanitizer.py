"""The sanitizer that the gate uses where credentials are inserted: ``ext/inspection/sanitizer.py``."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.network.flow import Flow
from mudroom.typing import Protocol

Field = tuple[bytes, bytes]


class BodySanitizer(Protocol):
    def see(self, piece: bytes) -> bytes:
        """Return a body's next piece without credential values, with the same length."""


class CredentialSanitizer(Protocol):
    """Removes credential values from everything that servers send."""

    def fields(self, fields: Sequence[Field]) -> list[Field]: ...
    def whole(self, data: bytes) -> bytes: ...
    def text(self, text: str) -> str: ...
    def flow(self, flow: Flow) -> Flow: ...
    def stream(self) -> BodySanitizer: ...
