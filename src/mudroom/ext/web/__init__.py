"""The server for ``mudroom serve``, on loopback: the page, its API, and agents' cards.

Starlette and uvicorn come with the extra ``web``. Only the verb imports this package.
"""
