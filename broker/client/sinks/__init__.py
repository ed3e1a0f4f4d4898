"""Where what jobs report can be copied to."""
