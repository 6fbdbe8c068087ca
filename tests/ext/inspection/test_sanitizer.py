"""The sanitizer: values in all spellings, in pieces cut anywhere, between other text; and text without them."""

from __future__ import annotations

import base64
import html
import json
import random
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mudroom.core.network.flow import Flow
from mudroom.core.network.inspection import Credential
from mudroom.ext.inspection.placeholder import parse_credential, with_value
from mudroom.ext.inspection.sanitizer import _ESCAPE, Sanitizer, _needles, _plain
from tiers import each, examples

MASK = set(b"mudro")


def credential(value: str) -> Credential:
    return with_value(parse_credential("TOKEN", "api.example.com"), value, bytes(range(32)))


def spell_character(one: str, how: int) -> str:
    code = ord(one)
    return (
        one,
        one.swapcase(),
        f"%{code:02x}",
        f"%{code:02X}",
        f"%25{code:02x}",
        f"%2525{code:02X}",
        f"\\u00{code:02x}",
        f"\\\\u00{code:02X}",
        f"\\x{code:02x}",
        f"\\u{{{code:x}}}",
        f"&#{code};",
        f"&#x{code:X};",
        f"&amp;#0{code};",
        f"\\u0026#{code};",
        f"%26%23{code}%3B",
    )[how]


WAYS = 15
"""Of ``spell_character``."""


def spell(value: str, seed: int) -> tuple[bytes, int]:
    """Return the value in a spelling, and the most bytes of it that pass before its beginning is recognised."""
    source = random.Random(seed)
    kind = source.randrange(10)
    if kind < 4 and set(value) & set("\\%&"):  # an encoder that is consistent; a mixture could be read in two ways
        text = (json.dumps(value)[1:-1], quote(quote(value)), html.escape(value), json.dumps(html.escape(value))[1:-1])[
            kind
        ]
        return text.encode(), 8 * 16
    if kind < 4:  # each character in a way of its own
        return "".join(spell_character(one, source.randrange(WAYS)) for one in value).encode(), 8 * 16
    if kind == 4:
        return quote(value, safe="").encode(), 8 * 3
    if kind == 5:
        return quote_plus(value).encode(), 8 * 3
    if kind == 6:
        return value.encode().hex().encode(), 18
    if kind == 7:
        return value.encode("utf-16-le"), 18
    coded = base64.b64encode(
        source.randbytes(source.randrange(3)) + value.encode() + source.randbytes(source.randrange(3))
    )
    if kind == 8 and source.randrange(2):
        return base64.b64encode(
            source.randbytes(source.randrange(3)) + coded + source.randbytes(source.randrange(3))
        ), 24
    if kind == 8:
        return base64.urlsafe_b64encode(base64.b64decode(coded)), 18
    lines = b"\r\n".join(coded[at : at + 20] for at in range(0, len(coded), 20))
    return lines, 18


VALUES = st.text("abcXYZ019-_./+=:%&\\\"' ~", min_size=8, max_size=60).map(lambda text: "k3" + text.strip() + "9Q")


@settings(max_examples=examples(400), deadline=None)
@given(
    VALUES.filter(lambda value: len(value) >= 8), st.integers(0, 1 << 30), st.binary(max_size=40), st.integers(1, 30)
)
def test_a_value_is_found_in_every_spelling_however_it_is_cut(value: str, seed: int, around: bytes, size: int) -> None:
    spelled, passes = spell(value, seed)
    sanitizer = Sanitizer([credential(value)])
    before = around.replace(b"\\", b"/").replace(b"&", b"a").replace(b"%", b"p") + b"\n"  # no escape across the border
    data = before + spelled + b"\n" + around
    assert len(sanitizer.whole(data)) == len(data)
    edge = {18: 12, 24: 20}.get(
        passes, 0
    )  # digits of base64 that hold bits of what is beside the value, and a line end
    masked = sanitizer.whole(data)[len(before) + edge : len(before) + len(spelled) - edge]
    assert set(masked) <= MASK or masked == credential(value).placeholder.encode(), (spelled, masked)
    stream = sanitizer.stream()
    got = b"".join(stream.see(data[at : at + size]) for at in range(0, len(data), size))
    assert len(got) == len(data)
    assert set(got[len(before) + passes : len(before) + len(spelled) - edge]) <= MASK, (spelled, got)


ESCAPES: dict[str, Callable[[bytes], bytes]] = {
    "percent": lambda text: b"".join(b"%%%02X" % byte for byte in text),
    "percent of reserved": lambda text: quote(text, safe="").encode(),
    "JSON": lambda text: json.dumps(text.decode("latin-1"))[1:-1].encode(),
    "\\u": lambda text: b"".join(b"\\u%04x" % byte for byte in text),
    "\\x": lambda text: b"".join(b"\\x%02x" % byte for byte in text),
    "\\u{}": lambda text: b"".join(b"\\u{%x}" % byte for byte in text),
    "HTML": lambda text: html.escape(text.decode("latin-1")).encode("latin-1"),
    "HTML decimal": lambda text: b"".join(b"&#%d;" % byte for byte in text),
    "HTML hex": lambda text: b"".join(b"&#x%x;" % byte for byte in text),
}
BASES: dict[str, Callable[[bytes], bytes]] = {
    "base64": base64.b64encode, "base64 for URLs": base64.urlsafe_b64encode, "base64 in lines": base64.encodebytes,
}  # fmt: skip
ENCODINGS: dict[str, Callable[[bytes], bytes]] = {
    **ESCAPES, **BASES, "hex": lambda text: text.hex().encode(), "HEX": lambda text: text.hex().upper().encode(),
    "UTF-16LE": lambda text: text.decode("latin-1").encode("utf-16-le"),
    "UTF-16BE": lambda text: text.decode("latin-1").encode("utf-16-be"),
}  # fmt: skip


@each("outer", ENCODINGS)
def test_which_encodings_are_found_on_top_of_which(outer: str) -> None:
    """As docs/THREATS.md says it: escapes on top of any encoding, and base64 of base64; 153 pairs of 256."""
    value = 'k3.A-b_c~9/+=xY&z"Q:77hhTT'
    sanitizer = Sanitizer([credential(value)])
    found = []
    for inner, encode in ENCODINGS.items():
        text = ENCODINGS[outer](encode(value.encode()))
        found += [inner] if sanitizer.whole(text) != text else []
    assert found == [inner for inner in ENCODINGS if outer in ESCAPES or (outer in BASES and inner in BASES)]


@settings(max_examples=examples(100), deadline=None)
@given(st.binary(max_size=400), st.integers(1, 60))
def test_other_text_is_not_changed(data: bytes, size: int) -> None:
    stream = Sanitizer([credential("ghp_" + "R4t5" * 9)]).stream()
    assert b"".join(stream.see(data[at : at + size]) for at in range(0, len(data), size)) == data


@settings(max_examples=examples(100), deadline=None)
@given(st.text("%25464abu0x;&#amp\\{}n/ghp_", max_size=60).map(str.encode))
def test_the_fast_search_and_the_one_with_places_agree(data: bytes) -> None:
    sanitizer = Sanitizer([credential("ghp_" * 3)])
    for is_whole in (True, False):
        assert sanitizer.may_hold(data, is_whole=is_whole) == bool(sanitizer.spans(data, is_whole=is_whole))


def test_a_verbatim_value_becomes_the_placeholder_of_the_same_length() -> None:
    one = credential("ghp_" + "R4t5" * 9)
    assert Sanitizer([one]).whole(b"are " + one.value.encode() + b".") == b"are " + one.placeholder.encode() + b"."


def test_each_of_several_values_is_found_and_long_ones_in_parts() -> None:
    first, second = credential("first-" + "1a" * 10), credential("second" + "".join(map(str, range(1000))))
    sanitizer = Sanitizer([first, second])
    text = f"{first.value} and {second.value}".encode()
    clean = sanitizer.whole(text)
    assert len(clean) == len(text)
    assert not any(second.value[at : at + 20].encode() in clean for at in range(len(second.value) - 20))
    assert first.value.encode() not in clean
    part = second.value[100:600]
    assert part.encode()[156:412] not in sanitizer.whole(part.encode()), "a part of 256 characters is found alone"


def test_names_values_texts_and_flows_are_cleaned() -> None:
    one = credential("ghp_" + "R4t5" * 9)
    sanitizer = Sanitizer([one])
    ((name, value), other) = sanitizer.fields([(b"x-" + one.value.lower().encode(), one.value.encode()), (b"a", b"b")])
    assert other == (b"a", b"b")
    assert len(name) == 2 + len(one.value) and one.value.lower().encode() not in name
    assert value == one.placeholder.encode()
    assert one.value not in sanitizer.text(f"illegal line: bytearray(b'{one.value}')")
    assert one.value not in sanitizer.text("umlaut \xe4 \udcff " + one.value)
    flow = Flow(
        1,
        "https",
        "h",
        443,
        "allow",
        "",
        one.value,
        path="/" + one.value,
        error=one.value,
        response=((one.value, one.value),),
    )
    assert one.value not in repr(sanitizer.flow(flow))


def test_a_sanitizer_shows_no_value_and_without_credentials_it_searches_nothing() -> None:
    one = credential("ghp_" + "R4t5" * 9)
    assert one.value not in repr(Sanitizer([one]))
    nothing = Sanitizer([])
    assert not nothing.searches
    assert nothing.fields([(b"a", b"b")]) == [(b"a", b"b")]
    assert nothing.stream().see(b"abc") == b"abc"


@pytest.mark.parametrize("value", ["short", "1234567"])
def test_a_value_that_cannot_be_told_from_other_text_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="at least 8 characters"):
        credential(value)


def test_the_work_for_a_piece_is_proportional_to_it() -> None:
    """Counted in bytes that are searched: a byte of the stream is looked at once, and ``reach`` bytes more a piece."""
    sanitizer = Sanitizer([credential("ghp_" + "R4t5" * 9)])
    assert sanitizer.reach <= 40 * 12
    assert len(list(_needles("x" * 40))) == 15
    text = b"\\" * 100_000 + b"%25" * 10_000 + b"&amp;" * 10_000
    assert len(_ESCAPE.sub(_plain, text)) < len(text)
