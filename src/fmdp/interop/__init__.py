"""Readers and writers of the formats of other programs, each imported only when used."""
