"""Real agents whose tokens have expired renew them inside; each refresh token of the scripted vendor is good once.

codex renews its own login. Of the others the login's server cannot be another, but that of an MCP server can: they keep
such tokens as they keep their login, in the same file or beside it.
"""

from __future__ import annotations

import hashlib
import json
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from model_server import ModelServer
from real_agents import BY_NAME, MUDROOM, Ended, RealAgent, Try
from scenario import Step
from vendor import CODEX, Vendor, token

pytestmark = [pytest.mark.deep, pytest.mark.both_users, pytest.mark.limit(200)]

_SETTINGS = """\
model = "gpt-5"
model_provider = "scripted"
cli_auth_credentials_store = "file"

[model_providers.scripted]
name = "scripted"
base_url = "{url}/v1"
wire_api = "responses"
requires_openai_auth = true
supports_websockets = false
"""


@pytest.fixture
def vendor() -> Iterator[Vendor]:
    vendor = Vendor()
    yield vendor
    vendor.close()


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Try]:
    agent = BY_NAME["codex"]._replace(environment={}, files={".codex/config.toml": _SETTINGS})
    if not agent.version:
        pytest.skip(f"real agent absent: {agent.name} (dev/agents --fetch installs it)")
    here = Try(tmp_path, agent)
    yield here
    here.close()


def log_in(here: Try, agent: RealAgent) -> Path:
    login = here.home / ".codex/auth.json"
    login.parent.mkdir(exist_ok=True)
    tokens = {
        "id_token": token(-60), "access_token": token(-60), "refresh_token": "refresh-0", "account_id": "account",
    }  # fmt: skip
    login.write_text(json.dumps({"OPENAI_API_KEY": None, "tokens": tokens, "last_refresh": "2026-01-01T00:00:00Z"}))
    login.chmod(0o600)
    return login


def play(here: Try, vendor: Vendor, *options: str) -> Ended:
    with ModelServer((Step("look", "ls -la"), Step("finish", content="Done."))) as server:
        here.prepare(server)
        here.environ["CODEX_REFRESH_TOKEN_URL_OVERRIDE"] = vendor.url + CODEX
        here.mudroom("net", "allow", "--private", f"127.0.0.1:{vendor.port}")
        if options == ("bare",):
            ended = here.bare(server)
        else:
            ended = here.inside(server, "--env", "CODEX_REFRESH_TOKEN_URL_OVERRIDE", *options)
        assert server.played() == ["look", "finish"], (ended.output, vendor.used, server.errors)
    return ended


@pytest.mark.parametrize("options", [("bare",), (), ("--level", "0"), ("--view", "copy")], ids=" ".join)
def test_codex_renews_an_expired_login(here: Try, vendor: Vendor, options: tuple[str, ...]) -> None:
    login = log_in(here, here.agent)
    ended = play(here, vendor, *options)
    assert ended.code == 0, ended.output
    assert vendor.used == ["refresh-0"], ended.output
    assert json.loads(login.read_text())["tokens"]["refresh_token"] == vendor.good == "refresh-1"
    assert stat.S_IMODE(login.stat().st_mode) == 0o600
    assert "not kept" not in ended.output


_ENCRYPT = """
const crypto = require("crypto"), os = require("os"), fs = require("fs");
const key = crypto.scryptSync("gemini-cli-oauth", `${os.hostname()}-${os.userInfo().username}-gemini-cli`, 32);
const iv = crypto.randomBytes(12), cipher = crypto.createCipheriv("aes-256-gcm", key, iv, {authTagLength: 16});
const row = {serverName: "default-api-key", token: {accessToken: "KEY", tokenType: "ApiKey"}, updatedAt: 1};
const text = JSON.stringify({"gemini-cli-api-key": {"default-api-key": JSON.stringify(row)}});
const encrypted = cipher.update(text, "utf8", "hex") + cipher.final("hex");
fs.writeFileSync(process.argv[1], [iv.toString("hex"), cipher.getAuthTag().toString("hex"), encrypted].join(":"));
"""
"""How gemini keeps its key where there is no keyring (its FileKeychain)."""


_IN_A_CONTAINER = pytest.param(("--level", "2"), marks=pytest.mark.deep)


@pytest.mark.parametrize("options", [("bare",), (), ("--view", "copy"), _IN_A_CONTAINER], ids=" ".join)
def test_gemini_reads_the_key_that_it_has_encrypted_with_the_machine_s_name(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    agent = BY_NAME["gemini"]
    if not agent.version:
        pytest.skip("real agent absent: gemini (dev/agents --fetch installs it)")
    here = Try(tmp_path, agent._replace(environment={"GOOGLE_GEMINI_BASE_URL": "{url}"}))
    try:
        with ModelServer((Step("look", "ls -la"), Step("finish", content="Done."))) as server:
            here.prepare(server)
            if "2" in options and here.run((*MUDROOM, "run", "--no", *options, "--", "true"), here.environ).code:
                pytest.skip("no container engine that mudroom can use here")
            here.command("node", "-e", _ENCRYPT, str(here.home / ".gemini/gemini-credentials.json"))
            ended = here.bare(server) if options == ("bare",) else here.inside(server, *options)
        assert server.played() == ["look", "finish"], (ended.output, server.errors)
        assert ended.code == 0 and "Corrupted" not in ended.output, ended.output
    finally:
        here.close()


# --- tokens of MCP servers ---


class McpLogin(NamedTuple):
    """An agent's settings and tokens of an MCP server."""

    settings: str
    """The file, relative to the home, to which the server is added."""
    servers: Callable[[str], Mapping[str, Any]]
    """The part of the settings, for the server's URL."""
    file: str
    tokens: Callable[[str], Any]
    """The content of the file with the tokens, which have ended."""


def _gemini_tokens(url: str) -> Any:
    held = {"accessToken": "access-0", "refreshToken": "refresh-0", "tokenType": "Bearer", "expiresAt": 1}
    row = {"serverName": "vendor", "token": held, "clientId": "client", "tokenUrl": f"{url}/token"}
    return [{**row, "mcpServerUrl": f"{url}/mcp", "updatedAt": 1}]


def _opencode_tokens(url: str) -> Any:
    held = {"accessToken": "access-0", "refreshToken": "refresh-0", "expiresAt": 1}
    return {"vendor": {"tokens": held, "clientInfo": {"clientId": "client"}, "serverUrl": f"{url}/mcp"}}


def _claude_tokens(url: str) -> Any:
    server = json.dumps({"type": "http", "url": f"{url}/mcp", "headers": {}}, separators=(",", ":"))
    name = f"vendor|{hashlib.sha256(server.encode()).hexdigest()[:16]}"
    held = {"accessToken": "access-0", "refreshToken": "refresh-0", "expiresAt": 1, "clientId": "client", "scope": ""}
    return {"mcpOAuth": {name: {"serverName": "vendor", "serverUrl": f"{url}/mcp", **held}}}


def _http(url: str) -> Mapping[str, Any]:
    return {"mcpServers": {"vendor": {"httpUrl": f"{url}/mcp"}}}


def _remote(url: str) -> Mapping[str, Any]:
    return {"mcp": {"vendor": {"type": "remote", "url": f"{url}/mcp"}}}


def _typed(url: str) -> Mapping[str, Any]:
    return {"mcpServers": {"vendor": {"type": "http", "url": f"{url}/mcp"}}}


MCP_LOGINS = {
    "claude": McpLogin(".claude.json", _typed, ".claude/.credentials.json", _claude_tokens),
    "gemini": McpLogin(".gemini/settings.json", _http, ".gemini/mcp-oauth-tokens.json", _gemini_tokens),
    "qwen": McpLogin(".qwen/settings.json", _http, ".qwen/mcp-oauth-tokens.json", _gemini_tokens),
    "opencode": McpLogin(
        ".config/opencode/opencode.json", _remote, ".local/share/opencode/mcp-auth.json", _opencode_tokens
    ),
    "kilo": McpLogin(".config/kilo/kilo.json", _remote, ".local/share/kilo/mcp-auth.json", _opencode_tokens),
}


@pytest.mark.limit(600)
@pytest.mark.parametrize("name", MCP_LOGINS)
def test_an_agent_renews_the_tokens_of_an_mcp_server(tmp_path: Path, vendor: Vendor, name: str) -> None:
    """Inside, bare, and inside again: each takes the token that the one before has left."""
    agent, login = BY_NAME[name], MCP_LOGINS[name]
    if not agent.version:
        pytest.skip(f"real agent absent: {name} (dev/agents --fetch installs it)")
    before = json.loads(agent.files.get(login.settings, "{}"))
    files = {**agent.files, login.settings: json.dumps({**before, **login.servers(vendor.url)})}
    here = Try(tmp_path, agent._replace(files=files))
    file = here.home / login.file
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(login.tokens(vendor.url)))
    file.chmod(0o600)
    here.mudroom("net", "allow", "--private", f"127.0.0.1:{vendor.port}")
    try:
        for turn, is_bare in enumerate((False, True, False), 1):
            with ModelServer((Step("look", "ls -la"), Step("finish", content="Done."))) as server:
                here.prepare(server)
                ended = here.bare(server) if is_bare else here.inside(server)
            said = (turn, ended.output[-3000:], vendor.used, vendor.paths, vendor.served, file.read_text())
            assert vendor.used == [f"refresh-{number}" for number in range(turn)], said
            assert "tools/list" in vendor.served, said
            assert f'"refresh-{turn}"' in file.read_text() and "was not kept" not in ended.output, said
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            vendor.served.clear()
            vendor.access = ""
            file.write_text(re.sub(r'("expiresAt":\s*)[\d.]+', r"\g<1>1", file.read_text()))  # an hour later
    finally:
        here.close()
