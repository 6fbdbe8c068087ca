"""JSON-RPC 2.0 messages as values. Pure. https://www.jsonrpc.org/specification

A message is read strictly: one object, a method or a result, an id that is a string or an integer. Batches, which only
MCP revision 2025-03-26 had, are refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from mudroom.typing import Any, NamedTuple

MOST = 16 << 20
"""Bytes in a message. A larger one is skipped and answered with an error."""
LONGEST_ID = 1_000
"""Characters in an id: it is repeated in the answer."""

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
RESOURCE_NOT_FOUND = -32002
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022
"""From RESOURCE_NOT_FOUND on: MCP's codes, revisions 2025-11-25 and 2026-07-28."""

Id = str | int


class RpcError(Exception):
    """A request that is answered with an error. ``identity`` None: the id is not known."""

    def __init__(self, code: int, message: str, data: object = None, identity: Id | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data, self.identity = code, message, data, identity


class RpcRequest(NamedTuple):
    id: Id
    method: str
    params: Mapping[str, Any]


class RpcNotification(NamedTuple):
    method: str
    params: Mapping[str, Any]


class RpcAnswer(NamedTuple):
    """The client's answer to a server request. ``result`` None: it was an error."""

    id: Id
    result: Mapping[str, Any] | None


RpcMessage = RpcRequest | RpcNotification | RpcAnswer


def parse(raw: bytes) -> RpcMessage:
    """Return the message. Raise RpcError if it is not valid."""
    if len(raw) > MOST:
        raise too_large(len(raw))
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):  # also if not UTF-8, too deep, or with an integer of more than 4,300 digits
        raise RpcError(PARSE_ERROR, "this is not JSON") from None
    if not isinstance(value, dict):
        why = "batches are not supported: send one message at a time" if isinstance(value, list) else "not an object"
        raise RpcError(INVALID_REQUEST, why)
    identity = value.get("id")
    known = identity if _is_id(identity) else None
    if value.get("jsonrpc") != "2.0":
        raise RpcError(INVALID_REQUEST, 'jsonrpc has to be "2.0"', identity=known)
    if "method" not in value:
        return _answer(value, known)
    method, params = value["method"], value.get("params")
    if not isinstance(method, str) or not isinstance(params, (dict, type(None))):
        raise RpcError(INVALID_REQUEST, "method has to be a string, and params an object", identity=known)
    if "id" not in value:
        return RpcNotification(method, params or {})
    if known is None:
        raise RpcError(INVALID_REQUEST, "id has to be a string or an integer")
    return RpcRequest(known, method, params or {})


def _answer(value: Mapping[str, Any], identity: Id | None) -> RpcAnswer:
    if identity is None or ("result" in value) == ("error" in value):
        raise RpcError(INVALID_REQUEST, "neither a request nor an answer", identity=identity)
    result = value.get("result")
    return RpcAnswer(identity, result if isinstance(result, dict) else None)


def _is_id(value: object) -> bool:
    if isinstance(value, bool):
        return False
    return (isinstance(value, str) and len(value) <= LONGEST_ID) or (isinstance(value, int) and abs(value) < 1 << 63)


def too_large(size: int) -> RpcError:
    return RpcError(INVALID_REQUEST, f"a message of {size:,} bytes is too large: {MOST:,} are allowed")


Json = dict[str, Any]


def request(identity: Id, method: str, params: Mapping[str, Any]) -> Json:
    return {"jsonrpc": "2.0", "id": identity, "method": method, "params": params}


def notification(method: str, params: Mapping[str, Any]) -> Json:
    return {"jsonrpc": "2.0", "method": method, "params": params}


def result(identity: Id, value: Mapping[str, Any]) -> Json:
    return {"jsonrpc": "2.0", "id": identity, "result": value}


def error(problem: RpcError, identity: Id | None = None) -> Json:
    body: Json = {"code": problem.code, "message": problem.message}
    if problem.data is not None:
        body["data"] = problem.data
    return {"jsonrpc": "2.0", "id": identity if identity is not None else problem.identity, "error": body}


def encoded(message: Json) -> bytes:
    """Return one line, in ASCII: no lone surrogate and no Unicode line separator can split a message."""
    return json.dumps(message, separators=(",", ":")).encode("ascii")
