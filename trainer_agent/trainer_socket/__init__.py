"""The socket in the folder of a run, where the trainer library of its script attaches."""
