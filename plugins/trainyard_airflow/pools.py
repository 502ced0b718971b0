"""Airflow pools that Trainyard's tasks need."""

from __future__ import annotations

PROMOTION_POOL = "trainyard_promotion"
"""One slot: an alias of the registry is set unconditionally, so that one task at a time may."""
