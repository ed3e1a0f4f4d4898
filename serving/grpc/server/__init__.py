"""A gRPC server on asyncio, over ``tiercel.serving.http2``: calls, messages, statuses, health and reflection."""
