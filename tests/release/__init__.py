"""Whether what would be released works where it is installed (`make release-check`)."""
