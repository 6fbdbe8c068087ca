"""Connections between forks, by consent of both: grants, sockets inside, the list of agents."""
