"""Requests that look as if they changed something, and only read: they pass a hold, and nothing passes with them."""

from __future__ import annotations

import json

import pytest
from yard import COMMIT, Yard, yard

from mudroom.core.network.host_rules import HostRule, parse_rule
from mudroom.ext.effects.request import is_download, is_query
from tiers import each

__all__ = ["yard"]
pytestmark = [pytest.mark.both_users]

QUERY = json.dumps({"query": "query($n:Int!){ viewer { login } }", "variables": {"n": 1}})
BATCH = json.dumps({"operation": "download", "transfers": ["basic"], "objects": [{"oid": "a" * 64, "size": 1}]})


@each(
    ("body", "expected"),
    [
        (QUERY, True),
        ('{"query": "{ viewer { login } }"}', True),
        ('{"query": "{ a(of: \\"\u00e4\\") }"}', True),
        ('{"query": "mutation { a }"}', False),
        ('{"query": "{ a }", "query": "mutation { a }"}', False),
        ('{"query": "\\u006dutation { a }"}', False),
        ('{"query": "{ a } mutation M { b }", "operationName": "M"}', False),
        ('{"query": "#\\nmutation{a}"}', False),
        ('{"query": "subscription { a }"}', False),
        ('[{"query": "{ a }"}]', False),
        ("query=%6dutation{a}", False),
        ('{"query": "{ a }"', False),
        ("", False),
    ],
)
def test_a_query_has_no_mutation_for_any_server(body: str, expected: bool) -> None:
    assert is_query(body.encode()) is expected


def test_a_query_in_another_coding_is_none() -> None:
    assert not any(is_query(QUERY.encode(coding)) for coding in ("utf-16", "utf-16-le", "utf-32", "utf-8-sig"))


@each(
    ("body", "expected"),
    [
        (BATCH, True),
        ('{ "operation" :\n"download" }', True),
        ('{"operation": "upload"}', False),
        ('{"operation": "download", "operation": "upload"}', False),
        ('{"operation": "download", "Operation": "upload"}', False),
        ('{"operation": "download", "\\u006fperation": "upload"}', False),
        ('{"operation": "download", "operation": ["upload"]}', False),
        ('{"operation": "down\\tload"}', False),
        ("{}", False),
        ("", False),
    ],
)
def test_a_batch_is_a_download_for_every_server(body: str, expected: bool) -> None:
    assert is_download(body.encode()) is expected


GRAPHQL, LFS = "/graphql", "/team/app.git/info/lfs/objects/batch"
JSON = "-H 'Content-Type: application/json'"
LFS_JSON = "-H 'Content-Type: application/vnd.git-lfs+json'"


@pytest.mark.parametrize(
    ("arguments", "path", "told"),
    [
        (f"{JSON} -d '{QUERY}'", GRAPHQL, ""),
        (f"{JSON[:-1]}; charset=utf-8' -d '{QUERY}'", GRAPHQL, ""),
        (f"{LFS_JSON} -d '{BATCH}'", LFS, ""),
        (f"{LFS_JSON} -d '{{}}'", LFS.replace("objects/batch", "locks/verify"), ""),
        (f"{JSON} -d '{QUERY}'", f"{GRAPHQL}?a=1", "POST /graphql"),
        ("-H 'X-HTTP-Method-Override: DELETE'", "/items/1", "GET (x-http-method-override) /items/1"),
        (f"{JSON} -d '{QUERY}'", "/graphql/", "POST /graphql/"),
        (f"-d '{QUERY}'", GRAPHQL, "a GraphQL mutation, or a query that is not plainly one"),
        (f"{JSON} -H 'Content-Encoding: gzip' -d '{QUERY}'", GRAPHQL, "a GraphQL mutation, or a query"),
        (f"{JSON} -H 'Transfer-Encoding: chunked' -d '{QUERY}'", GRAPHQL, "a GraphQL mutation, or a query"),
        (f'{JSON} -d \'{QUERY[:-1]}, "a": "{"x" * 20_000}"}}\'', GRAPHQL, "a GraphQL mutation, or a query"),
        (f"{JSON} -d '{QUERY.replace('query($n:Int!)', 'mutation')}'", GRAPHQL, "a GraphQL mutation"),
        (f"{LFS_JSON} -d '{BATCH.replace('download', 'upload')}'", LFS, "an upload or a lock of git LFS"),
        (f"{LFS_JSON} -d '{{}}'", LFS.replace("objects/batch", "locks"), "an upload or a lock of git LFS"),
    ],
)
def test_what_only_reads_passes_and_all_else_is_refused_in_words(
    yard: Yard, arguments: str, path: str, told: str
) -> None:
    """A client of git LFS shows the text of a JSON answer alone."""
    allowed = HostRule("allow", "api.github.com", (yard.api_port,), private=True)
    rule = parse_rule(f"api.github.com:{yard.api_port}", "hold", "the test")
    with yard.session(allowed, rule) as session:
        done = yard.run(
            session, f"curl -s -w '\\n%{{http_code}}\\n' {arguments} https://api.github.com:{yard.api_port}{path}"
        )
        body, status, _end = done.stdout.decode().rsplit("\n", 2)
        if not told:
            assert (status, yard.api.effects()) == ("201", 1), done
            return
        assert (status, yard.api.effects()) == ("403", 0), done
        said = json.loads(body)["message"] if "/lfs/" in path else body
        assert f"this cannot be held: {told}" in said


def test_another_name_of_a_held_server_is_not_held(yard: Yard) -> None:
    """As docs/THREATS.md says: a hold is about a host, and an allowed host that leads to the same server is another."""
    held_rule = parse_rule(f"forge.example:{yard.port}", "hold", "the test")
    mirror = HostRule("allow", "api.github.com", (yard.port,), private=True)
    with yard.session(mirror, held_rule) as session:
        url = yard.url().replace("forge.example", "api.github.com")
        done = yard.run(session, f"git remote set-url origin {url}; {COMMIT}git push -q origin HEAD:main")
        assert (done.exit_code, b"held" in done.stderr) == (0, False), done
        assert session.changes.pushes("f") == []
    assert yard.forge.pushes() == 1
