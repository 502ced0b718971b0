"""Airflow's services on one machine: how they are configured, started, reached and ended."""
