"""A mail server on loopback, aiosmtpd's."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult


class PostOffice:
    """``taken`` has the mails in order: (sender, recipients, content). ``fault``: ``refuse``, ``busy``, ``cut before``,
    ``cut after`` or ``error after`` the mail is taken. ``login``: the pair that it wants. ``stand``: as a forge's. A
    mail that has come whole is taken, also if its sender is gone."""

    def __init__(self, pem: Path | None = None, *, tls: bool = False) -> None:
        """``tls``: from the first byte."""
        self._tls = tls
        self.taken: list[tuple[str, list[str], bytes]] = []
        self.fault, self.login, self.logins = "", ("", ""), list[tuple[str, str]]()
        self.stand: Callable[[str], object] = lambda _point: None
        self._context = None if pem is None else ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if self._context is not None and pem is not None:
            self._context.load_cert_chain(pem)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def open(self) -> int:
        self._thread.start()
        self._server = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        return int(self._server.sockets[0].getsockname()[1])

    async def _listen(self) -> asyncio.Server:
        return await self._loop.create_server(
            lambda: _Smtp(
                self,
                tls_context=None if self._tls else self._context,
                authenticator=self._authenticate,
                hostname="mail",
                auth_require_tls=not self._tls,
            ),
            "127.0.0.1",
            0,
            ssl=self._context if self._tls else None,
        )

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    @property
    def is_idle(self) -> bool:
        return not asyncio.all_tasks(self._loop)

    def _authenticate(self, _server: Any, _session: Any, _envelope: Any, _mechanism: str, given: Any) -> Any:
        self.logins.append((given.login.decode(), given.password.decode()))
        return AuthResult(success=self.logins[-1] == self.login)

    async def handle_RCPT(self, _server: Any, _session: Any, envelope: Any, address: str, _options: Any) -> str:  # noqa: N802
        if address.startswith("nobody@"):
            return "550 5.1.1 no such mailbox"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, _session: Any, envelope: Any) -> str:  # noqa: N802
        return await asyncio.shield(asyncio.ensure_future(self._take(server, envelope)))

    async def _take(self, server: SMTP, envelope: Any) -> str:
        await self._stand(server, "got")
        if self.fault in ("refuse", "busy"):
            return "554 5.7.1 not from you" if self.fault == "refuse" else "451 4.3.0 later"
        if self.fault != "cut before":
            self.taken.append((envelope.mail_from, envelope.rcpt_tos, envelope.content))
        if self.fault == "error after":
            return "421 4.3.2 shutting down"
        if self.fault:
            server.transport.abort()  # type: ignore[union-attr]
        await self._stand(server, "done")
        if server.transport is not None and not server.transport.is_closing():
            await server.push("250-2.0.0 queued")
        await self._stand(server, "answer")
        return "250 as 1"

    async def _stand(self, server: SMTP, point: str) -> None:
        try:
            await asyncio.to_thread(self.stand, point)
        except ConnectionError:
            if server.transport is not None:
                server.transport.abort()  # type: ignore[attr-defined]
            raise


class _Smtp(SMTP):
    async def push(self, status: Any) -> None:
        await super().push(status)
        if str(status).startswith("354"):
            await self.event_handler._stand(self, "data")
