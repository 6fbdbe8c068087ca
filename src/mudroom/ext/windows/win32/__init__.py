"""The Windows API: declared calls, and the twins for POSIX calls that are made from them.

Other systems load none of it, except in tests. A module that needs a twin chooses it where it imports
(``if sys.platform == "win32"``), so that other systems import and call what they always have.
"""
