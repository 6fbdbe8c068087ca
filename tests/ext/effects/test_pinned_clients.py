"""A client that does not trust the sandbox's certificates reaches no server that holds, and mudroom says why."""

from __future__ import annotations

import json
import shutil

import pytest
from yard import COMMIT, Yard
from yard import yard as yard

from mudroom.core.network.host_rules import parse_rule

pytestmark = [pytest.mark.both_users]

PIN = "sha256//AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
SAYS = "its rule holds what is sent there, for which a client has to trust the sandbox's certificates"
NODE = """
const https = require('https'), ca = require('fs').readFileSync('own.pem');
const sent = https.request({host: 'api.github.com', port: PORT, method: 'PUT', path: '/items/1', ca}, () => {});
sent.on('error', error => { console.error(String(error)); process.exit(1) });
sent.end('{}');
"""


def refused(yard: Yard, script: str) -> str:
    """What the client says. It sends nothing, and the run, its summary and the log have the sentence."""
    (yard.project / "own.pem").write_text((yard.root / "roots.pem").read_text())
    with yard.session(parse_rule(f"api.github.com:{yard.api_port} PUT", "hold", "x", private=True)) as session:
        done = yard.run(session, script)
        assert done.exit_code, done
        assert [denial.kind for denial in done.denials] == ["network"], done.denials
        assert SAYS in done.denials[0].reason
        events = [json.loads(event.data) for event in session.vault.journal.events() if event.kind == "flow"]
        assert any(SAYS in event["reason"] and event["verdict"] == "deny" for event in events)
        assert session.changes.pushes("f") == []
    assert (yard.forge.pushes(), yard.api.effects()) == (0, 0)
    return done.stderr.decode()


def test_curl_with_a_pinned_key(yard: Yard) -> None:
    url = f"https://api.github.com:{yard.api_port}/items/1"
    assert "pinned" in refused(yard, f"curl -sS --pinnedpubkey {PIN} -X PUT -d '{{}}' {url}")


@pytest.mark.parametrize("own", ["-c http.pinnedPubkey=" + PIN, "-c http.sslCAPath=.git/info"])
def test_git_with_a_pinned_key_or_authorities_of_its_own(yard: Yard, own: str) -> None:
    """With ``http.sslCAInfo`` alone it still takes the system's authorities, and its push is held."""
    url, file = yard.url(tls=True), "export GIT_SSL_CAINFO=$PWD/own.pem; "
    said = refused(yard, f"{file}git remote set-url origin {url}; {COMMIT}git {own} push -q origin HEAD:main")
    assert "certificate" in said or "pinned" in said


@pytest.mark.deep
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_node_with_authorities_of_its_own(yard: Yard) -> None:
    (yard.project / "send.cjs").write_text(NODE.replace("PORT", str(yard.api_port)))
    assert "certificate" in refused(yard, "node send.cjs")
