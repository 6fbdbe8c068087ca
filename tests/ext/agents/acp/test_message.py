"""Lines of the protocol: what is a message, what is refused, and that a reader and a writer keep every byte."""

from __future__ import annotations

import json
import os
import threading
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mudroom.ext.agents.acp.message import AcpMessage, Malformed, key_of, line_of, parse, too_long
from mudroom.ext.agents.acp.stream import Outbox, messages
from tiers import each

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@each(
    ("line", "kind"),
    [
        ('{"id":1,"method":"x"}', "request"),
        ('{"id":null,"method":"x"}', "request"),
        ('{"method":"x"}', "notification"),
        ('{"id":1,"result":null}', "response"),
        ('{"id":"1","error":{}}', "response"),
    ],
)
def test_kinds(line: str, kind: str) -> None:
    message = parse(line.encode())
    assert isinstance(message, AcpMessage)
    assert message.kind == kind


@each(
    ("line", "code", "identifier"),
    [
        (b"", -32700, None),
        (b"nonsense", -32700, None),
        (b'{"id":1,"method":"x"} {}', -32700, None),
        (b'{"id":1,"method":"\xff"}', -32700, None),
        (b"\xef\xbb\xbf{}", -32700, None),
        ('{"id":1,"method":"x"}'.encode("utf-16"), -32700, None),
        (b'{"id":1,"method":"x","params":{"a":NaN}}', -32600, None),
        (b'{"id":1,"method":"x","params":{"a":-Infinity}}', -32600, None),
        (b'{"id":1,"id":2,"method":"x"}', -32600, None),
        (b'{"id":1,"method":"x","params":{"b":1,"b":1}}', -32600, None),
        (b'{"id":1,"method":"x","params":{"b":1,"\\u0062":1}}', -32600, None),
        (b'{"id":1,"method":7}', -32600, 1),
        (b'{"id":1,"method":"x","result":{}}', -32600, 1),
        (b'{"id":"a"}', -32600, "a"),
        (b'{"result":{}}', -32600, None),
        (b'{"id":{},"method":"x"}', -32600, None),
        (b'{"id":false,"method":"x"}', -32600, None),
        (b'{"id":1,"method":"_x","Method":"fs/write_text_file"}', -32600, None),
        ('{"id":1,"method":"_x","param\u017f":{}}'.encode(), -32600, None),
        (b'{"id":1,"method":"x","params":{"a":1e999}}', -32600, None),
        (b'{"id":1e999,"method":"x"}', -32600, None),
        (b"[]", -32600, None),
        (b"7", -32600, None),
        (b"[" * 100_000, -32700, None),
        (b'{"id":' + b"1" * 5000 + b',"method":"x"}', -32700, None),
    ],
)
def test_lines_that_are_no_messages(line: bytes, code: int, identifier: Any) -> None:
    found = parse(line)
    assert isinstance(found, Malformed)
    assert (found.code, found.id) == (code, identifier)


@given(JSON, st.integers() | st.text(), st.text())
def test_a_message_keeps_its_bytes(params: Any, identifier: Any, method: str) -> None:
    line = json.dumps({"id": identifier, "method": method, "params": params}, ensure_ascii=False)
    try:
        raw = line.encode()
    except UnicodeEncodeError:
        return  # a lone surrogate is no UTF-8
    message = parse(raw)
    assert isinstance(message, AcpMessage)
    assert message.raw == raw.strip()


def test_a_carriage_return_is_no_end_of_a_line() -> None:
    message = parse(b'{"method":"_x",\r"params":{}}')
    assert isinstance(message, AcpMessage)
    assert message.raw == b'{"method":"_x","params":{}}'


def test_identifiers_differ_by_type() -> None:
    keys = [key_of(identifier) for identifier in (1, "1", 1.5, None, "null", 0)]
    assert len(set(keys)) == 6


@each(("one", "other"), [(0, 0.0), (0, -0.0), (7, 7.0), (2**53, 2**53 + 1), (10**400, 10**400)])
def test_identifiers_that_are_one_double_are_one(one: float, other: float) -> None:
    assert key_of(one) == key_of(other)


@given(st.binary(max_size=60))
def test_the_head_of_a_long_line_raises_nothing(head: bytes) -> None:
    assert too_long(head, 1 << 30).code == -32600


@each(
    ("head", "identifier", "awaits"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":"', 7, True),
        (b'{ "method" : "x" , "id" : "q", "params"', "q", True),
        (b'{"id":7,"result":{"a":"', 7, False),
        (b'{"params":{"id":7', None, True),
        (b'{"id":true,"params":', None, True),
    ],
)
def test_the_identifier_of_a_long_line(head: bytes, identifier: Any, awaits: bool) -> None:
    found = too_long(head, 100 << 20)
    assert (found.id, found.awaits) == (identifier, awaits)


# --- streams ---


def read_all(data: bytes, most: int = 1 << 20, step: int = 7) -> list[AcpMessage | Malformed]:
    read, write = os.pipe()

    def feed() -> None:
        for at in range(0, len(data), step):
            os.write(write, data[at : at + step])
        os.close(write)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        return list(messages(read, most))
    finally:
        thread.join()
        os.close(read)


def test_messages_in_pieces_with_empty_lines_and_without_a_last_end() -> None:
    found = read_all(b'\n{"method":"a"}\r\n \n{"method":"b"}\n{"method":"c"}')
    assert [message.method for message in found if isinstance(message, AcpMessage)] == ["a", "b", "c"]


def test_a_line_that_is_too_long_is_left_out() -> None:
    line = b'{"id":5,"method":"b","params":"' + b"x" * 50_000 + b'"}'
    found = read_all(b'{"method":"a"}\n' + line + b'\n{"method":"c"}\n' + line, most=10_000, step=999)
    assert [type(message).__name__ for message in found] == ["AcpMessage", "Malformed", "AcpMessage"]
    assert found[1].id == 5


def test_lines_are_written_whole_and_in_order() -> None:
    read, write = os.pipe()
    outbox = Outbox(write)
    lines = [line_of({"method": "x", "params": {"n": number, "fill": "y" * 10_000}}) for number in range(200)]
    for line in lines:
        outbox.put(line)
    outbox.close()
    with open(read, "rb") as stream:
        assert stream.read().splitlines() == lines
    assert outbox.wait(60)


def test_a_writer_whose_reader_has_gone_says_so() -> None:
    read, write = os.pipe()
    gone = threading.Event()
    outbox = Outbox(write, gone.set)
    os.close(read)
    outbox.put(b"x")
    assert gone.wait(60)
    assert outbox.wait(60)
    outbox.put(b"y", waits=True)  # nothing waits for it


def test_a_line_that_is_passed_on_waits_for_a_slow_reader_and_mudrooms_own_does_not() -> None:
    read, write = os.pipe()
    outbox = Outbox(write)
    outbox.put(b"x" * (9 << 20))
    outbox.put(b"own")
    passed = threading.Event()

    def put() -> None:
        outbox.put(b"passed", waits=True)
        passed.set()

    thread = threading.Thread(target=put)
    thread.start()
    assert not passed.is_set()

    def close() -> None:
        passed.wait()
        outbox.close()

    closing = threading.Thread(target=close)
    closing.start()
    with open(read, "rb") as stream:
        assert stream.read().splitlines()[1:] == [b"own", b"passed"]
    thread.join()
    closing.join()
