"""The elimination engine: Bellman backups without an S x S matrix, cost networks and their
orders."""
