"""What REST and gRPC share: sockets that listen, and which connections there is room for."""
