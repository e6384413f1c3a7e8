"""The decision server: one ASGI application that gateways and plain HTTP clients ask, and what runs it."""
