"""Model files: reading and writing the JSON format."""
