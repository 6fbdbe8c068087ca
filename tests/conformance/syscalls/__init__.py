"""The system call filter beside those of other sandboxes.

``profiles.json`` says of each of them which calls it refuses, and under which conditions, as read from its published
source; ``decision`` judges a call by such a profile or by our own tables; ``python -m tests.conformance.syscalls``
prints docs/evidence/SYSCALLS.md.
"""
