"""Flows as an HTTP archive."""

from __future__ import annotations

import datetime
import json

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.network.flow import Flow
from mudroom.core.network.har import HIDDEN, keep_headers, to_har

FLOW = Flow(
    started=1_795_281_334_059_808_281,
    way="https",
    host="api.example.com",
    port=443,
    verdict="allow",
    rule="policy.yaml:3",
    reason="policy.yaml:3 allows it",
    address="192.0.2.1",
    method="GET",
    path="/user",
    status=200,
    sent=10,
    received=20,
    seconds=0.25,
    version="HTTP/2",
    request=(("accept", "*/*"),),
    response=(("content-type", "text/plain"),),
)


def test_an_exchange_is_an_entry_with_all_that_the_format_wants() -> None:
    archive = json.loads(json.dumps(to_har([FLOW], "1.0")))
    (entry,) = archive["log"]["entries"]
    assert archive["log"]["version"] == "1.2"
    assert archive["log"]["creator"] == {"name": "mudroom", "version": "1.0"}
    assert entry["startedDateTime"] == "2026-11-21T17:15:34.059Z"
    assert (entry["time"], entry["timings"]) == (250.0, {"send": 0, "wait": 250.0, "receive": 0})
    request, response = entry["request"], entry["response"]
    assert (request["method"], request["url"]) == ("GET", "https://api.example.com/user")
    assert request["httpVersion"] == response["httpVersion"] == "HTTP/2"
    assert request["headers"] == [{"name": "accept", "value": "*/*"}]
    assert (response["status"], response["content"]) == (200, {"size": 20, "mimeType": "text/plain"})
    assert entry["serverIPAddress"] == "192.0.2.1"
    for key in ("cookies", "queryString", "headersSize", "bodySize"):
        assert key in request
    for key in ("cookies", "statusText", "redirectURL", "headersSize", "bodySize"):
        assert key in response


def test_what_is_no_http_is_left_out_and_the_rest_is_in_order() -> None:
    later = FLOW._replace(started=FLOW.started + 10**9, way="http", port=8080, host="2001:db8::1", error="cut")
    entries = to_har([later, FLOW._replace(way="connect"), FLOW._replace(method=""), FLOW], "1.0")["log"]["entries"]
    assert [entry["request"]["url"] for entry in entries] == [
        "https://api.example.com/user",
        "http://[2001:db8::1]:8080/user",
    ]
    assert entries[1]["response"]["_error"] == "cut"


def test_of_secrets_only_the_name_is_kept() -> None:
    secret = b"Authorization Proxy-Authorization Cookie Set-Cookie X-Api-Key PRIVATE-TOKEN X-Amz-Signature".split()
    found = keep_headers([*((name, b"s3cret") for name in secret), (b"Accept", b"\xe4" + b"x" * 5000)])
    assert [value for _name, value in found[:-1]] == [HIDDEN] * len(secret)
    assert found[-1] == ("accept", ("\xe4" + "x" * 5000)[:1024])
    assert len(keep_headers([(b"a", b"b")] * 1000)) == 64


@given(st.integers(0, 253_402_300_799_999))
def test_dates_are_right(milliseconds: int) -> None:
    (entry,) = to_har([FLOW._replace(started=milliseconds * 1_000_000)], "1.0")["log"]["entries"]
    date = datetime.datetime(1970, 1, 1) + datetime.timedelta(milliseconds=milliseconds)
    assert entry["startedDateTime"] == date.isoformat(timespec="milliseconds") + "Z"
