"""An authorization server on loopback that takes each refresh token once, and an MCP server that wants its tokens.

OAuth 2.1: RFC 6749, section 6 (refresh), RFC 8414 and RFC 9728 (metadata); MCP: modelcontextprotocol.io,
2025-06-18, "Authorization" and "Streamable HTTP".
"""

from __future__ import annotations

import base64
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

CODEX = "/oauth/token"
"""The path by which codex renews its login."""
_TOOL = {"name": "ping", "description": "Answer.", "inputSchema": {"type": "object", "properties": {}}}


def token(seconds: int) -> str:
    """Return a JWT that ends in so many seconds. Its signature is none."""
    claims = {
        "exp": int(time.time()) + seconds,
        "email": "user@example.org",
        "https://api.openai.com/auth": {"chatgpt_plan_type": "pro", "chatgpt_account_id": "account"},
    }
    parts = ({"alg": "none", "typ": "JWT"}, claims)
    encoded = (base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts)
    return ".".join((*encoded, "c2ln"))


class Vendor:
    """``used``: the refresh tokens of all requests, in order; ``served``: calls of MCP with the newest token."""

    def __init__(self) -> None:
        self.used: list[str] = []
        self.served: list[str] = []
        self.paths: list[str] = []
        self.good, self.access = "refresh-0", ""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def renew(self, refresh: str) -> tuple[int, dict[str, Any]]:
        self.used.append(refresh)
        if refresh != self.good:
            return 401, {"error": {"code": "refresh_token_reused", "message": "used up"}}
        self.good, self.access = f"refresh-{len(self.used)}", f"access-{len(self.used)}"
        return 200, {
            "access_token": self.access, "refresh_token": self.good, "token_type": "Bearer", "expires_in": 3600
        }  # fmt: skip

    def metadata(self, path: str) -> dict[str, Any] | None:
        if path.startswith("/.well-known/oauth-protected-resource"):
            return {"resource": f"{self.url}/mcp", "authorization_servers": [self.url]}
        if path.startswith(("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")):
            return {
                "issuer": self.url,
                "authorization_endpoint": f"{self.url}/authorize",
                "token_endpoint": f"{self.url}/token",
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none"],
            }
        return None

    def call(self, message: dict[str, Any]) -> dict[str, Any] | None:
        """Return the answer to a message of MCP, or None if it wants none."""
        method = message.get("method", "")
        self.served.append(method)
        if "id" not in message:
            return None
        result: dict[str, Any] = {}
        if method == "initialize":
            version = message["params"]["protocolVersion"]
            server = {"name": "vendor", "version": "1"}
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": server}
        elif method == "tools/list":
            result = {"tools": [_TOOL]}
        return {"jsonrpc": "2.0", "id": message["id"], "result": result}

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(vendor: Vendor) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 5

        def log_message(self, *_words: object) -> None:
            """Print no line for each request."""

        def do_GET(self) -> None:
            vendor.paths.append(f"GET {self.path}")
            metadata = vendor.metadata(self.path)
            self._send(200 if metadata else 405 if self.path == "/mcp" else 404, metadata or {})

        def do_POST(self) -> None:
            vendor.paths.append(f"POST {self.path}")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            if self.path == CODEX:
                status, answer = vendor.renew(json.loads(body)["refresh_token"])
                ends = {"id_token": token(3600), "access_token": token(3600)} if status == 200 else {}
                self._send(status, {**answer, **ends})
            elif self.path == "/token":
                self._send(*vendor.renew(parse_qs(body.decode()).get("refresh_token", [""])[0]))
            elif self.path != "/mcp":
                self._send(404, {})
            elif not vendor.access or self.headers.get("Authorization") != f"Bearer {vendor.access}":
                where = f'Bearer resource_metadata="{vendor.url}/.well-known/oauth-protected-resource"'
                self._send(401, {"error": "invalid_token"}, {"WWW-Authenticate": where})
            else:
                answer_to = vendor.call(json.loads(body))
                self._send(202 if answer_to is None else 200, answer_to)

        def _send(self, status: int, content: dict[str, Any] | None, headers: dict[str, str] | None = None) -> None:
            body = b"" if content is None else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
