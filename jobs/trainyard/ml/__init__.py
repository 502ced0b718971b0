"""What the Spark ML estimators of both engines share."""
