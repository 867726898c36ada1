"""Exact plans on counts: models with exchangeable parts, planned by how many parts are in what."""
