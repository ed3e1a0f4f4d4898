"""gRPC services: translation between the wire and the actors, nothing else."""
