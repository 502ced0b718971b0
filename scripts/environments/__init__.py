"""How `.venv/tools`, `.venv/airflow` and `.venv/jobs` are made; scripts/setup.py is the command."""
