"""The bypass suite: programs that try to reach what the gate does not let them reach, judged from outside.

``attempt`` has the table and what an attempt is told; ``allowed``, ``hosts``, ``fronts``, ``framing``, ``sockses``,
``lookups``, ``packets``, ``ways`` and ``afterwards`` are its groups, and ``words`` is what they say. ``internet`` is a
host with a network and an internet of its own, in namespaces, where every packet is seen; ``serving`` is who answers
there, ``phone`` its directory of names; ``drive`` runs commands in a session; ``outside`` puts it together and judges,
``flood`` only floods; ``python -m tests.conformance.bypasses`` prints the table.
"""
