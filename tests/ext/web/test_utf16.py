"""Places in a text as browsers count them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mudroom.ext.web.api.region import utf16_spans


@given(st.text(max_size=30).filter(lambda text: text.isprintable()), st.data())
def test_spans_as_javascript_counts(text: str, data: st.DataObject) -> None:
    places = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=2, max_size=2)))
    span = (places[0], places[1])
    ((start, end),) = utf16_spans(text, [span])
    units = text.encode("utf-16-le")
    assert units[2 * start : 2 * end].decode("utf-16-le") == text[span[0] : span[1]]
