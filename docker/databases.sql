-- Run once, when PostgreSQL's volume is empty: a database and a role for each service.
\getenv airflow_password AIRFLOW_DB_PASSWORD
\getenv mlflow_password MLFLOW_DB_PASSWORD

CREATE ROLE airflow LOGIN PASSWORD :'airflow_password';
CREATE DATABASE airflow OWNER airflow;

CREATE ROLE mlflow LOGIN PASSWORD :'mlflow_password';
CREATE DATABASE mlflow OWNER mlflow;
