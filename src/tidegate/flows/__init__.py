"""What asks a store, written once as `async def` over a port. No clock, no threads, no event loop here."""
