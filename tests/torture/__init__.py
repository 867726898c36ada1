"""The torture: what a machine, a disk and other people can do to fmdp, done on purpose.

Kills and signals at random moments, files that lie, locks, full disks, hostile names. Each module
has a function `rounds(seed, scale)` that yields `Trial`s: what was tried, how often, and what went
wrong, or why it cannot be tried here. A child that fmdp is asked in has limits of memory and time.
Another seed tries other things; `scale` 1 takes minutes, and a tenth of it some seconds. A module
that is put here is found: a command that answers while it runs gets one of its own.

`make torture` goes through all of it and prints the table; the short form runs with the tests.
"""
