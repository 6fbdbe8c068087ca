"""The escape suite of two: an attacker in one fork, and an accomplice in another, in the background or beside it.

``pair`` is the table's form; ``meetings``, ``signals``, ``processes``, ``wires`` and ``descriptors`` are its groups of
ways to meet; ``landing`` are attempts to change what is reviewed, applied, undone or sealed; ``inside`` runs one of the
two, by a plain interpreter without site-packages; ``outside`` starts both and judges; ``backend`` are the ways in which
commands are confined; ``known`` names what is not held, with the reason.

What runs inside imports only the standard library and the modules of this suite.
"""
