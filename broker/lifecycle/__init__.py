"""Pure state machines: an event in, the new state and effects out."""
