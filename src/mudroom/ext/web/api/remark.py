"""A reviewer's remarks about a fork: listed, written, settled, sent."""

from __future__ import annotations

import os

from msgspec import Struct

from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.remarks.core.listing import ListedRemarks, state_words
from mudroom.ext.remarks.core.prompt import LocatedRemark
from mudroom.ext.remarks.session import Remarks, prompt_id
from mudroom.ext.web import shape
from mudroom.ext.web.api.endpoint import ApiCall, Endpoint, id_of, path_of
from mudroom.ext.web.state.refusal import Refusal
from mudroom.ext.web.state.server_state import require_fork

_MS = 10**6
"""Nanoseconds."""


def remarks(call: ApiCall) -> shape.ReviewRemarksShape:
    with call.server.session(call.path["project"]) as session:
        return _listed(Remarks(session, require_fork(session, call.path["fork"])))


def add(call: ApiCall) -> shape.ReviewRemarksShape:
    asked: shape.AddRemarkShape = call.body
    with call.server.session(call.path["project"]) as session:
        own = Remarks(session, require_fork(session, call.path["fork"]))
        path = path_of(asked.id) if asked.id else b""
        own.add(path, asked.first, asked.last, asked.text, side=asked.side, suggestion=asked.suggestion)
        return _listed(own)


def change(call: ApiCall) -> shape.ReviewRemarksShape:
    asked: shape.ChangeRemarkShape = call.body
    name = call.path["remark"]
    with call.server.session(call.path["project"]) as session:
        own = Remarks(session, require_fork(session, call.path["fork"]))
        if asked.act == "answer":
            own.answer(name, asked.text)
        elif asked.act == "take":
            own.take(name)
        elif asked.act == "remove":
            own.remove(name)
        else:
            own.settle(name, is_settled=asked.act == "settle")
        return _listed(own)


class PromptQuery(Struct):
    again: bool = False


def prompt(call: ApiCall) -> shape.RemarkPromptShape:
    query: PromptQuery = call.query
    with call.server.session(call.path["project"]) as session:
        fork = require_fork(session, call.path["fork"])
        text, command, problem = Remarks(session, fork).prompt(again=query.again), "", ""
        try:
            command = show_words([os.fsencode(word) for word in call.server.environment.agent_words(session, fork)])
        except UsageError as error:
            problem = error.message
    return shape.RemarkPromptShape(prompt_id(text), text, command, problem)


def send(call: ApiCall) -> shape.JobShape:
    asked: shape.SendRemarksShape = call.body
    project, server = call.path["project"], call.server
    with server.session(project) as session:
        fork, at = require_fork(session, call.path["fork"]), session.project
        if prompt_id(Remarks(session, fork).prompt()) != asked.id:
            raise Refusal(409, "moved", "the remarks have changed since; nothing was sent", "look at them again")
    return server.jobs.start(
        project, fork, "send", lambda _reporter: server.environment.send(at, fork, asked.id, asked.waits)
    )


def _listed(own: Remarks) -> shape.ReviewRemarksShape:
    listed = own.listed()
    try:
        new = own.new_since(listed) or ()
    except (MudroomError, OSError):
        new = ()  # the fork is in use, or a file is gone just now: the next look tells
    return shape.ReviewRemarksShape(
        [_row(one, listed) for one in listed.remarks],
        list(listed.damaged),
        listed.round,
        listed.point,
        [id_of(path) for path in sorted(new)],
        len(listed.unsent),
        list(listed.cut_off),
    )


def _row(one: LocatedRemark, listed: ListedRemarks) -> shape.ReviewRemarkShape:
    remark = one.remark
    return shape.ReviewRemarkShape(
        one.name,
        id_of(remark.place) if remark.place else "",
        one.label,
        one.first,
        one.last,
        remark.side,
        one.where,
        state_words(one, listed.cut_off),
        remark.text,
        remark.suggestion,
        [shape.RemarkAnswerShape(answer.text, answer.by, answer.time // _MS) for answer in remark.answers],
        remark.settled,
        remark.is_unsent and one.name not in listed.cut_off,
        remark.time // _MS,
    )


_FORK = "/projects/{project}/forks/{fork}"
ENDPOINTS = (
    Endpoint("GET", f"{_FORK}/remarks", "The reviewer's remarks", remarks, shape.ReviewRemarksShape),
    Endpoint("POST", f"{_FORK}/remarks", "Write a remark", add, shape.ReviewRemarksShape, shape.AddRemarkShape),
    Endpoint(
        "POST",
        f"{_FORK}/remarks/{{remark}}",
        "Answer, settle or remove a remark, or take its suggestion",
        change,
        shape.ReviewRemarksShape,
        shape.ChangeRemarkShape,
    ),
    Endpoint(
        "GET", f"{_FORK}/prompt", "The prompt of the unsent remarks", prompt, shape.RemarkPromptShape, query=PromptQuery
    ),
    Endpoint("POST", f"{_FORK}/send", "Send the remarks", send, shape.JobShape, shape.SendRemarksShape, status=202),
)
