"""An SMTP server in the gate, in place of a held host's own.

A client's login is a placeholder, or none. It may use TLS or STARTTLS, with the vault's authority, or none: the
connection ends in the gate. The release uses TLS as the client did, and STARTTLS wherever the server has it.
RFC 5321, RFC 3207, RFC 4954, RFC 8314; aiosmtpd.
"""

from __future__ import annotations

import asyncio
import logging

from mudroom.ext.effects.mail import MOST_MAIL
from mudroom.ext.effects.message import HeldQuestion
from mudroom.ext.effects.server import admit, decoded, desk, pair
from mudroom.ext.inspection.authority import issuer
from mudroom.net.gate.exchange import Exchange
from mudroom.net.gate.fork_dials import ForkUnreachable
from mudroom.net.gate.peer import Peer
from mudroom.net.gate.relay import relay
from mudroom.typing import Any, Literal

MAIL_MEMORY = 2 * MOST_MAIL
"""Bytes for a connection: aiosmtpd has a mail's lines, and the mail."""


async def serve_mail(client: Peer, exchange: Exchange, scheme: Literal["smtp", "smtps"]) -> None:
    """Serve a connection to its end. ``smtps``: it is the inside of TLS. Raise RefusedExchange."""
    inspection = await admit(client, exchange, "aiosmtpd.smtp", "mail", MAIL_MEMORY)
    from aiosmtpd.smtp import SMTP, AuthResult, LoginPassword

    login: list[tuple[str, str]] = []

    def authenticate(_server: Any, _session: Any, _envelope: Any, _mechanism: str, given: Any) -> Any:
        password = given.password.decode("latin-1") if isinstance(given, LoginPassword) else ""
        known = {(one.placeholder, one.host, one.port): one.name for one in inspection.credentials}
        name = known.get((password, exchange.host, exchange.port), "")
        if not name:
            why = f"a login of the command's own: mudroom net credential NAME {exchange.host}:{exchange.port} gives one"
            return AuthResult(success=False, handled=False, message=f"535 5.7.8 mudroom: this cannot be held: {why}")
        login[:] = [(name, f"basic {given.login.decode('latin-1')}:{{}}")]
        return AuthResult(success=True)

    class Handler:
        async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:  # noqa: N802
            headers = [("from", envelope.mail_from or ""), *(("to", to) for to in envelope.rcpt_tos)]
            question = HeldQuestion("mail", scheme, "/", *(login[0] if login else ("", "")), headers=headers)
            try:
                async with desk(exchange, question) as (reader, writer):
                    writer.write(envelope.content)
                    await writer.drain()
                    writer.write_eof()
                    answer = decoded(await reader.read(-1))
            except (OSError, ForkUnreachable, ValueError) as error:
                return f"451 4.3.0 mudroom: this cannot be held: {error}"
            if answer.problem:
                return f"550 5.7.1 mudroom: this cannot be held: {answer.problem}".encode("ascii", "replace").decode()
            return "250 2.0.0 held: it will be sent when the fork is applied"

    loop = asyncio.get_running_loop()
    logging.getLogger("mail.log").disabled = True  # it tells a client's faults on stderr
    near, theirs = pair()
    context = issuer(inspection.authority).context(exchange.host, "http/1.1") if scheme == "smtp" else None
    options: dict[str, Any] = {"auth_require_tls": False, "authenticator": authenticate, "tls_context": context}
    options |= {"hostname": exchange.host, "ident": "mudroom holds this mail", "data_size_limit": MOST_MAIL}
    await loop.connect_accepted_socket(lambda: SMTP(Handler(), enable_SMTPUTF8=True, loop=loop, **options), theirs)
    await relay(client, near)
