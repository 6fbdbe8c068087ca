"""The copies of agents' stores: what commands of a fork see of the home, and what of it lands there."""
