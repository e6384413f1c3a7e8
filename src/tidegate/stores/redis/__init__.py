"""The Redis and Valkey store: names, scripts, and what travels between them."""
