"""A fork's own part of the home, for an agent's commands: stores, logins, git and shell settings."""
