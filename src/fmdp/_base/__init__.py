"""Private helpers that every other package stands on; nothing here is public."""
