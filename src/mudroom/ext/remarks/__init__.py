"""A reviewer's remarks about a fork: kept with it, carried along with their lines, sent to its agent."""
