"""The queue of decisions: what waits for the user, in the order in which it costs somebody time."""
