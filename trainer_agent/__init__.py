"""The node agent: runs training, enforces shares, hands models over to the inference server."""
