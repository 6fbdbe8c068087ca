"""A link's frames and settings, as bytes and back."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.settings import Settings
from mudroom.ext.fleet.wire import message
from mudroom.ext.fleet.wire import settings as wire_settings
from mudroom.ext.fleet.wire.frame import LARGEST, Frame, FrameReader, LinkError, encode
from mudroom.policy.config import parse_settings
from mudroom.policy.settings_table import ROWS
from tiers import each

FRAMES = st.lists(
    st.builds(Frame, st.integers(0, 255), st.integers(0, (1 << 32) - 1), st.binary(max_size=300)), max_size=8
)


@given(FRAMES, st.lists(st.integers(1, 50), max_size=40))
def test_frames_in_any_pieces_are_the_same(frames: list[Frame], sizes: list[int]) -> None:
    data = b"".join(map(encode, frames))
    reader, came = FrameReader(), list[Frame]()
    for size in [*sizes, len(data)]:
        came += reader.feed(data[:size])
        data = data[size:]
    assert came == frames and reader.is_between_frames


@given(st.binary(max_size=200))
def test_bytes_of_nobody_are_frames_an_error_or_waited_for(data: bytes) -> None:
    try:
        for frame in FrameReader({}, 64).feed(data):
            assert len(frame.body) <= 64
    except LinkError:
        return


def test_a_length_beyond_the_bound_is_refused_before_its_body() -> None:
    with pytest.raises(LinkError):
        list(FrameReader().feed(b"\xff\xff\xff\xff\x01\0\0\0\0"))
    with pytest.raises(ValueError, match="fit into a frame"):
        encode(Frame(1, 0, bytes(LARGEST + 1)))


@given(st.sampled_from(sorted(message.TYPES)), st.binary(max_size=100))
def test_a_body_is_a_message_of_its_kind_or_an_error(kind: int, body: bytes) -> None:
    try:
        got: object = message.message_of(Frame(kind, 0, body), message.TYPES[kind])
    except LinkError:
        return
    assert isinstance(got, message.TYPES[kind])


SECTIONS = sorted({row.key.partition(".")[0] for row in ROWS})


@each("section", SECTIONS)
def test_every_setting_travels(section: str) -> None:
    """Each policy setting, with its row's example, is the same at the other end."""
    for row in ROWS:
        if row.key.partition(".")[0] == section:
            settings = parse_settings(f"{section}: {{{row.name}: {row.example}}}".encode(), "policy.yaml")
            assert settings != Settings() or row.alias, row.key
            assert wire_settings.decode(wire_settings.encode(settings)) == settings, row.key


def test_settings_of_another_mudroom_are_refused() -> None:
    for value in ({"class": "Settings", "novel": 1}, {"class": "os.system"}, [1], {"class": "Settings", "level": {}}):
        with pytest.raises(LinkError):
            wire_settings.decode(msgspec.msgpack.encode(value))
