"""The one elimination engine: backups without an S x S matrix, cost networks, their orders."""
