"""What the two ends of an encrypted connection agree on: certificates, pins, join tokens."""
