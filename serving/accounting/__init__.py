"""What requests took, what they may take, and what is told of it."""
