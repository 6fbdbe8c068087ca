"""Effects that wait for an apply: a host with a ``hold`` rule is read as usual, and a git push to it, or the publish of
a package, is stored in the fork, shown in the review, and sent when the fork is applied; undo takes a push back. All
else that would change something there is refused."""
