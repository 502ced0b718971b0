-- Run once, when the volume of the studies' PostgreSQL is empty: jobs own their database, not the server.
\getenv studies_password STUDIES_DB_PASSWORD

CREATE ROLE studies LOGIN PASSWORD :'studies_password';
CREATE DATABASE studies OWNER studies;
