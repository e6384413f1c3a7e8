"""The HTTP face: fields, problem bodies, client identity, and the ASGI and WSGI middlewares.

An application needs `tidegate.http.asgi.RateLimitMiddleware` or `tidegate.http.wsgi.RateLimitMiddleware`
(docs/http.md). Standard library only. Nothing here knows a framework; a framework's own objects come in
as hooks.
"""
