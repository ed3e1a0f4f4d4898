"""Whether ``utility`` holds on programs and arrivals that nobody here made up, and what its rules buy there."""
