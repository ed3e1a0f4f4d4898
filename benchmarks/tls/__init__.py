"""What TLS costs the inference server: in the clear, by the event loop's own TLS, and by the server's."""
