"""A policy kept in a YAML file: `load` it, describe it to an editor, and take a changed one while running."""

from __future__ import annotations

from tidegate.config.load import Config, Source, json_schema, load
from tidegate.config.reload import Reloader
from tidegate.config.settings import HttpSettings, ServerSettings
from tidegate.config.store_settings import StoreSettings

__all__ = [
    "Config",
    "HttpSettings",
    "Reloader",
    "ServerSettings",
    "Source",
    "StoreSettings",
    "json_schema",
    "load",
]
