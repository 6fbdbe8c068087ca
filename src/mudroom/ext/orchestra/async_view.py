"""The asynchronous shape of an object of a vendor's SDK: the same calls as coroutines, each in a thread."""

from __future__ import annotations

import asyncio
import inspect

from mudroom.ext.orchestra.workspace import aside
from mudroom.typing import Any


class AsyncView:
    """``parts``: names of attributes, and classes of results, that are views, too. A callback among the arguments is
    called in the event loop, and may be a coroutine function. Cancelling a call ends its command."""

    def __init__(self, inner: Any, parts: tuple[type, ...] = ()) -> None:
        self._inner, self._parts = inner, parts

    async def __aenter__(self) -> AsyncView:
        return self

    async def __aexit__(self, *error: object) -> None:
        await aside(self._inner.__exit__, *error)

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        return self._call(value) if inspect.ismethod(value) else self._viewed(value)

    def _viewed(self, value: Any) -> Any:
        return AsyncView(value, self._parts) if isinstance(value, self._parts) else value

    def _call(self, method: Any) -> Any:
        async def call(*args: Any, **options: Any) -> Any:
            loop = asyncio.get_running_loop()
            words = [_in_loop(loop, word) for word in args]
            named = {name: _in_loop(loop, word) for name, word in options.items()}
            return self._viewed(await aside(method, *words, **named))

        return call


def _in_loop(loop: asyncio.AbstractEventLoop, value: Any) -> Any:
    """Return a callback that can be called in any thread, and returns when it has been called; other values as they
    are."""
    if not (inspect.isroutine(value) or inspect.ismethod(value)):
        return value

    async def called(*args: Any) -> None:
        result = value(*args)
        if inspect.isawaitable(result):
            await result

    return lambda *args: asyncio.run_coroutine_threadsafe(called(*args), loop).result()
