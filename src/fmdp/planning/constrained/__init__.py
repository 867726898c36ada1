"""Plans under limits on long-run averages, and fronts of two averages."""
