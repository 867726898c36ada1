"""Reports of stored runs: statistics, figures, tables, the web page. Nothing here runs anything."""
