"""Tiercel: train and serve on the same few machines; ship at the first tier, keep training, hot-swap what is better.

The folders of the repository's top are linked into this package, so that what is ``broker/`` in the tree is
``tiercel.broker`` in an import, and nothing of ours claims a name like ``serving`` in somebody's environment.
"""

__version__ = "0.1.0"
