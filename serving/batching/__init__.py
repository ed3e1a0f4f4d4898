"""Dynamic batching: calls that wait for the same model run together, and no call waits for company.

Nothing here knows a transport. ``waiting`` and ``profile`` decide and are pure, ``rows`` puts batches together and
takes them apart, ``measure`` finds out what batching does to a model, and ``batcher`` lives on the event loop.
"""
