"""A schema with every type that Avro has, and a value of it."""

from __future__ import annotations

from typing import Any

EVERYTHING: dict[str, Any] = {
    "type": "record",
    "name": "Everything",
    "namespace": "shop",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "big", "type": "long"},
        {"name": "half", "type": "float"},
        {"name": "whole", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "text", "type": "string"},
        {"name": "maybe", "type": ["null", "string"], "default": None},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "other_colour", "type": ["Colour", "null"]},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": ["null", "int"]}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "clock_us", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "at_ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "at_us", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {
            "name": "fixed_price",
            "type": {
                "type": "fixed",
                "name": "Price",
                "size": 8,
                "logicalType": "decimal",
                "precision": 12,
                "scale": 3,
            },
        },
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "place",
            "type": {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]},
        },
        {"name": "places", "type": {"type": "array", "items": "shop.Place"}},
        {
            "name": "visits",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Visit",
                    "fields": [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}],
                },
            },
        },
    ],
}
