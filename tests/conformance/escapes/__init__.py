"""The escape suite: programs that succeed when they get out, and the canaries by which that is judged from outside.

``attempt`` is the table's form; ``files``, ``metadata``, ``sockets``, ``ipc``, ``namespaces``, ``processes``,
``kernel``, ``terminal``, ``network`` and ``resources`` are its groups; ``inside`` runs attempts where they are to be
tried, by a plain interpreter without site-packages; ``outside`` keeps the canaries and judges; ``tools`` are the
sandboxes that are compared; ``python -m tests.conformance.escapes`` prints the comparison.

What runs inside imports only the standard library and each other.
"""
