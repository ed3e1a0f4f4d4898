"""What broker, agent, serving and client share; it imports nothing of theirs."""
