"""Doors to other programs: what reads and writes their formats, imported only when used."""
