"""Classes of command lines, checked by execution: docs/decisions/0053 has the rules of the comparison.

``option`` reads the options of a program from its help and its manual page, ``generation`` makes lines of them (pure,
seeded), ``world`` is the project in which they run, ``harness`` runs them inside a sandbox and observes, ``comparison``
says which classes an observation demands (pure), ``runner`` puts these together, and
``python -m tests.conformance.classes`` runs them for as long as it is told.

``world`` and ``harness`` run inside a sandbox and import only the standard library and each other.
"""
