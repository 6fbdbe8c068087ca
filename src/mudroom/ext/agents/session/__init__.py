"""An agent's run from start to end, and the settings that it has changed."""
