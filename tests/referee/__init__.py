"""The referee: what fmdp prints, held against code that shares nothing with its engine.

`recipes` writes models down as plain tables, `truth` solves them in exact arithmetic, `programs`
writes their linear programs out, `replay` lives them again from the random streams; `claims` says
what every printed number has to satisfy, and `ledger` counts. `reports` runs small sweeps and
recomputes their CSV files by `report_truth`. Of fmdp only the public verbs are
called, and only to be judged: a test reads the imports.

`make referee` goes through all models and prints the table; the short form runs with the tests.
"""
