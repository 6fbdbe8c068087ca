"""A reviewer's remarks about a fork's changes: kept with the fork, carried along with their lines, sent to its agent."""
