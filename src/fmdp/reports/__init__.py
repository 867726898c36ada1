"""Reports of stored runs: statistics, figures, tables and the web page. Nothing here runs anything."""
