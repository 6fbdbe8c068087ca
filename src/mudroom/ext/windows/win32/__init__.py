"""The Windows API: declared calls, and the twins of POSIX calls that are made of them.

Nothing here is loaded on another system, but by tests. A module that needs a twin chooses it where it imports:
``if sys.platform == "win32"``, so that other systems import and call what they always have.
"""
