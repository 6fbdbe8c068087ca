"""Browsers that are notified while their page is closed (``ext/web/push``)."""

from __future__ import annotations

from urllib.parse import urlsplit

from mudroom.ext.web import shape
from mudroom.ext.web.api.endpoint import ApiCall, Endpoint
from mudroom.ext.web.push.message import why_not


def devices(call: ApiCall) -> shape.DevicesShape:
    return _listed(call, "")


def add(call: ApiCall) -> shape.DevicesShape:
    asked: shape.AddDeviceShape = call.body
    call.server.push.add(asked.name, asked.endpoint, asked.key, asked.secret, asked.origin)
    return _listed(call, asked.endpoint)


def remove(call: ApiCall) -> shape.DoneShape:
    call.server.push.remove(call.path["device"])
    return shape.DoneShape()


def _listed(call: ApiCall, endpoint: str) -> shape.DevicesShape:
    push = call.server.push
    rows = [
        shape.DeviceShape(
            one.id,
            one.name,
            urlsplit(one.endpoint).hostname or "",
            one.added * 1000,
            one.until * 1000,
            push.problems.get(one.id, ""),
            one.endpoint == endpoint,
        )
        for one in push.devices()
    ]
    return shape.DevicesShape(rows, push.public_key(), why_not())


ENDPOINTS = (
    Endpoint("GET", "/devices", "Browsers that are notified while their page is closed", devices, shape.DevicesShape),
    Endpoint("POST", "/devices", "Notify a browser", add, shape.DevicesShape, shape.AddDeviceShape),
    Endpoint("DELETE", "/devices/{device}", "Notify it no longer", remove, shape.DoneShape),
)
