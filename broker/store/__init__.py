"""What survives a restart of the broker."""
