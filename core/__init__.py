"""The words of Tiercel as frozen types, and the plumbing that broker, agent, serving and client share.

It imports nothing of theirs.
"""
