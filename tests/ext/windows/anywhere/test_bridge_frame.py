"""Frames of the bridge's pipe, as a client may send them."""

from __future__ import annotations

import pytest

from mudroom.ext.windows.sandbox.bridge import PIECE, BrokenFrame, read_frame, write_frame
from mudroom.ext.windows.win32.pipe import PipeClosed, PipeStopped
from tiers import each


class Pieces:
    """A pipe whose client sends these bytes, one at a time, and is then gone, or has this end stopped."""

    def __init__(self, data: bytes, end: PipeClosed) -> None:
        self._left, self._end = data, end
        self.written = b""

    def read(self, _most: int, /) -> bytes:
        if not self._left:
            raise self._end
        byte, self._left = self._left[:1], self._left[1:]
        return byte

    def write(self, data: bytes, /) -> None:
        self.written += data


def test_frames_come_whole_whatever_the_pieces() -> None:
    out = Pieces(b"", PipeClosed())
    for data in (b"x" * 300, b"y", b""):
        write_frame(out, data)
    pipe = Pieces(out.written, PipeClosed())
    assert [read_frame(pipe) for _number in range(3)] == [b"x" * 300, b"y", b""]
    with pytest.raises(PipeClosed) as gone:
        read_frame(pipe)
    assert type(gone.value) is PipeClosed, "between two frames a client may go"


@each("left", [b"\1", b"\1\0\0", b"\2\0\0\0", b"\2\0\0\0x"])
def test_a_frame_that_is_cut_off_is_told_by_the_type_of_the_end_whatever_its_text(left: bytes) -> None:
    for words in ((), ("it was ended",)):
        with pytest.raises(BrokenFrame, match="cut off"):
            read_frame(Pieces(left, PipeClosed(*words)))
        with pytest.raises(PipeStopped):
            read_frame(Pieces(left, PipeStopped(*words)))


def test_a_frame_that_is_too_long_is_not_read() -> None:
    with pytest.raises(BrokenFrame, match=f"a frame of {PIECE + 1} bytes"):
        read_frame(Pieces((PIECE + 1).to_bytes(4, "little"), PipeClosed()))
    assert len(read_frame(Pieces(PIECE.to_bytes(4, "little") + bytes(PIECE), PipeClosed()))) == PIECE
