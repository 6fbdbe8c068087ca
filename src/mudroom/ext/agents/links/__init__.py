"""Connections between forks, by both forks' consent: grants, sockets inside, the list of agents."""
