"""The escape suite: programs that succeed when they get out, and the canaries by which that is judged from outside.

``attempt`` has the table and what an attempt is told; ``files``, ``metadata``, ``sockets``, ``ipc``, ``namespaces``,
``processes``, ``kernel``, ``terminal``, ``network`` and ``resources`` are its groups; ``outside`` keeps the canaries
and judges; ``tools`` are the sandboxes compared; ``python -m tests.conformance.escapes`` prints the comparison.
"""
