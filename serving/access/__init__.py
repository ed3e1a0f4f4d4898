"""Who may ask which model: the table of rules that the agent keeps, and the gate that goes by it."""
