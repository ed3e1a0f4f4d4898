"""``tiercel login``: a person signs in at a provider, in a browser, for the commands of a terminal."""
