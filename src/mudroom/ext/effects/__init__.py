"""Pushes that wait for an apply: a host with a ``hold`` rule is read as usual, and a git push to it is stored in the
fork, shown in the review, sent when the fork is applied, and taken back by undo. All else that would change something
there is refused."""
