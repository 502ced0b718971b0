"""The first task of a pipeline: looks at all that the others need, before any of them starts."""

from __future__ import annotations

from collections import Counter

from airflow.sdk import BaseOperator, Context
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from trainyard_airflow import masking, settings


class DoctorOperator(BaseOperator):
    """Examine the Spark tasks of this DAG; errors fail the run, warnings do not.

    No Spark session is started. AIRFLOW__TRAINYARD__DOCTOR=False switches it off.
    """

    def execute(self, context: Context) -> dict[str, int]:
        """Log each finding and return how many there are of each level.

        Raises:
            AirflowFailException: with the first error that a retry would find again.
            AirflowException: with the first of errors that may all be over by a retry.
        """
        if not settings.doctor():
            self.log.info("AIRFLOW__TRAINYARD__DOCTOR is off: nothing is looked at.")
            return {}
        # Here, since a scheduler that parses a DAG has no use for them.
        from trainyard_airflow.doctor.examine import examine
        from trainyard_airflow.doctor.findings import ERROR, OK, WARNING, failed
        from trainyard_airflow.doctor.given import look_at_conf
        from trainyard_airflow.doctor.patient import patients_of

        patients, findings = patients_of(self.dag, context)
        findings += look_at_conf(context["dag_run"].conf or {}, self.dag.params)
        findings += examine(patients)
        say = {OK: self.log.info, WARNING: self.log.warning, ERROR: self.log.error}
        for finding in findings:
            say[finding.level]("%s", finding)
        if errors := failed(findings):
            more = f" ({len(errors) - 1} more errors above)" if len(errors) > 1 else ""
            worst = max(errors, key=lambda found: found.permanent)  # the first of these
            kind = AirflowFailException if worst.permanent else AirflowException
            raise kind(masking.mask(f"cause: {worst.subject}: {worst.text} fix: {worst.fix}{more}"))
        return dict(Counter(finding.level for finding in findings))
