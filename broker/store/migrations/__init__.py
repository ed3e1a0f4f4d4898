"""How the schema came to be: one revision a file under ``versions/``, applied when the store is opened."""
