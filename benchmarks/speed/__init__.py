"""How fast, beside what: scripts, and the tables made of their results."""
