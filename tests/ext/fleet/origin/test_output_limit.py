"""Output that comes from a worker without end."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

from mudroom.ext.fleet.origin.errand_log import AttemptRow
from mudroom.ext.fleet.origin.fleet_event import ErrandOutput
from mudroom.ext.fleet.origin.output import Outputs


def test_the_limit_holds_whatever_the_worker_sends(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    lines, notes = list[str](), list[str]()
    outputs = Outputs(
        lambda _output: os.fsencode(tmp_path / "1"), lambda _output, text: lines.append(text), 10, notes.append
    )
    row = AttemptRow("7", 1, "running", "far")

    def said(stream: int, offset: int, data: bytes) -> bytes:
        return outputs.add(ErrandOutput(cast("Any", None), row, stream, offset, data))

    assert said(1, 0, b"123\n") == b"123\n"
    assert said(1, 0, b"123\n567") == b"567", "the first bytes came twice"
    assert notes == []
    assert said(1, 7, b"890abc") == b"890"
    assert notes == ["stdout of errand 7 on far has more than 10 bytes (run.output_limit): the rest is dropped"]
    assert [said(1, offset, b"x" * 100) for offset in range(20, 3_000_000_000, 1_000_000_000)] == [b""] * 3
    assert said(2, 0, b"0123456789") == b"0123456789"
    assert len(notes) == 1
    outputs.close()
    assert lines == ["123"]
