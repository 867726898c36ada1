"""Exchangeable parts of a model: how they are found, and its factors in terms of them."""
