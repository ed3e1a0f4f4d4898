"""The way to the broker: the stream and what goes out over it, and the calls beside it."""
