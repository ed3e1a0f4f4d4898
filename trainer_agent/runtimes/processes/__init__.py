"""Runs as processes of the agent's user: minders that outlive the agent, and templates to fork from."""
