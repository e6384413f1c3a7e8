# Flask behind the WSGI middleware, through its own test client.

from __future__ import annotations

import flask
import pytest
from werkzeug.test import Client

from tidegate import Limiter, TokenBucket
from tidegate.http import wsgi
from tidegate.http.charge import only_status
from tidegate.testing import ManualClock


def flask_app() -> flask.Flask:
    app = flask.Flask("api")

    @app.route("/<name>", methods=["GET", "POST"])
    def answer(name: str):
        if name == "stream":
            return flask.Response(iter(["a", "b"]), mimetype="text/plain")
        if name == "raise":
            raise RuntimeError("endpoint")
        return {"status": int(name)}, int(name)

    return app


def test_flask():
    """A Flask application serves the burst, then 429; streams, errors and 404s carry the fields."""
    app = flask_app()
    app.wsgi_app = wsgi.RateLimitMiddleware(  # type: ignore[method-assign]  # as Flask's documentation does it
        app.wsgi_app, Limiter(TokenBucket(4, "1/s"), clock=ManualClock())
    )
    client = app.test_client()
    answers = [client.get(path) for path in ("/200", "/stream", "/x/y", "/raise", "/200")]

    assert [answer.status_code for answer in answers] == [200, 200, 404, 500, 429]
    assert [answer.headers["RateLimit"][8:11] for answer in answers] == ["r=3", "r=2", "r=1", "r=0", "r=0"]
    assert answers[1].text == "ab"
    assert answers[4].get_json()["violated-policies"] == ["limit"]


def test_flask_lets_exceptions_through():
    """C180: where Flask propagates exceptions, they come out unchanged, after one charge."""
    app = flask_app()
    app.testing = True
    limiter = Limiter(TokenBucket(4, "0/s"))
    app.wsgi_app = wsgi.RateLimitMiddleware(app.wsgi_app, limiter)  # type: ignore[method-assign]  # see above
    with pytest.raises(RuntimeError, match="endpoint"):
        app.test_client().get("/raise")

    assert limiter.peek("127.0.0.1").remaining == 3


def test_flask_counts_failed_logins_alone():
    """C184: limit 3 of 401s: 200, 401, 401, 500, 401; then refused."""
    app = flask_app()
    app.wsgi_app = wsgi.RateLimitMiddleware(  # type: ignore[method-assign]  # see above
        app.wsgi_app, Limiter(TokenBucket(3, "0/s")), charge=only_status({401})
    )
    client = app.test_client()
    asked = ["/200", "/401", "/401", "/raise", "/401", "/200"]

    assert [client.post(path).status_code for path in asked] == [200, 401, 401, 500, 401, 429]


def test_a_cors_layer_around_wsgi():
    """C174: a layer around the limiter adds its fields to the 429; one inside does not see it."""

    def cors_layer(app):
        def layer(environ, start_response):
            def start(status, headers, *more):
                return start_response(status, [*headers, ("Access-Control-Allow-Origin", "*")], *more)

            return app(environ, start)

        return layer

    def refused(app):
        asking = Client(app)
        return [asking.get("/200") for _ in range(2)][1]

    def limited(app):
        return wsgi.RateLimitMiddleware(app, Limiter(TokenBucket(1, "1/s"), clock=ManualClock()))

    outside, inside = refused(cors_layer(limited(flask_app()))), refused(limited(cors_layer(flask_app())))

    assert (outside.status_code, inside.status_code) == (429, 429)
    assert "Access-Control-Allow-Origin" in outside.headers
    assert "Access-Control-Allow-Origin" not in inside.headers
