"""The server's side of HTTP/2 (RFC 9113) with HPACK (RFC 7541), without I/O: bytes in, calls of handlers, bytes out."""
