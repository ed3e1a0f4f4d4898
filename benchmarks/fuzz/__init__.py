"""The inference server under requests that nobody should send: a million of them in process, and some over sockets."""
