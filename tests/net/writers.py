"""Places of the source that write toward a client."""

from __future__ import annotations

import re
from pathlib import Path

_WRITES = re.compile(r"client\w*\.(?:write|transport\.write)\(|\.(?:send_headers|send_data)\(|\.pass_to\(client")


def writers_in(folder: Path) -> dict[str, int]:
    """Return how often each module of a folder writes toward a client."""
    counts = {
        path.relative_to(folder).as_posix(): len(_WRITES.findall(path.read_text()))
        for path in sorted(folder.rglob("*.py"))
    }
    return {name: count for name, count in counts.items() if count}
