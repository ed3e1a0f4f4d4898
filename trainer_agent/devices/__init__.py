"""What the machine has to offer."""
