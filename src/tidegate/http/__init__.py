"""The HTTP face: fields, problem bodies, client identity, and the ASGI and WSGI middlewares.

Standard library only. Nothing here knows a framework; a framework's own objects come in as hooks.
"""
