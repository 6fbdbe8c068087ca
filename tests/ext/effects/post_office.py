"""A mail server on loopback, aiosmtpd's."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult


class PostOffice:
    """``taken`` has the mails in order: (sender, recipients, content). ``fault``: ``refuse``, ``busy``, ``cut before``
    or ``cut after`` the mail is taken. ``login``: the pair that it wants."""

    def __init__(self, pem: Path) -> None:
        self.taken: list[tuple[str, list[str], bytes]] = []
        self.fault, self.login, self.logins = "", ("", ""), list[tuple[str, str]]()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(pem)
        self._controller = Controller(
            self, "127.0.0.1", 0, tls_context=self._context, authenticator=self._authenticate, server_hostname="mail"
        )

    def open(self) -> int:
        self._controller.start()
        return int(self._controller.server.sockets[0].getsockname()[1])

    def close(self) -> None:
        self._controller.stop()

    def _authenticate(self, _server: Any, _session: Any, _envelope: Any, _mechanism: str, given: Any) -> Any:
        self.logins.append((given.login.decode(), given.password.decode()))
        return AuthResult(success=self.logins[-1] == self.login)

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any) -> str:  # noqa: N802
        if address.startswith("nobody@"):
            return "550 5.1.1 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, _session: Any, envelope: Any) -> str:  # noqa: N802
        if self.fault in ("refuse", "busy"):
            return "554 5.7.1 not from you" if self.fault == "refuse" else "451 4.3.0 later"
        if self.fault != "cut before":
            self.taken.append((envelope.mail_from, envelope.rcpt_tos, envelope.content))
        if self.fault:
            server.transport.abort()  # type: ignore[union-attr]
        return "250 2.0.0 queued as 1"
