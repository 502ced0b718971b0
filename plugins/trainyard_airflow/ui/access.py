"""Who may see what: the DAGs' permissions hold for what their runs made."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from typing import Annotated

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.models.dag import DagModel
from fastapi import Depends

from trainyard.layout import safe_name

_NO_DAG = "~no-dag"
"""An id that no DAG has: who may read it may read every DAG."""

may_read_run: Callable[..., None] = requires_access_dag("GET", DagAccessEntity.RUN)
"""Dependency of a route with `dag_id` in its path: 401 without a session, 403 without the right."""


class Readable:
    """The DAGs whose runs a user may read.

    Args:
        dag_ids: DAGs that there are, those among them at least that the user may read.
        may_read: whether the user may read the runs of a DAG.
    """

    def __init__(self, dag_ids: Collection[str], may_read: Callable[[str], bool]) -> None:
        self._by_name = {safe_name(dag_id): dag_id for dag_id in dag_ids}
        self._may_read = cache(may_read)

    def dag_of(self, directory: str | None) -> str | None:
        """The DAG of a directory below the store, if the user may read its runs."""
        dag_id = self._by_name.get(directory or "")
        return dag_id if dag_id is not None and self._may_read(dag_id) else None

    def sees(self, directory: str | None) -> bool:
        """Whether the user may see what lies there.

        What no DAG of today made is seen by those who may read every DAG.
        """
        return self.dag_of(directory) is not None or self._may_read(_NO_DAG)


def _readable(user: GetUserDep) -> Readable:
    manager = get_auth_manager()

    def may_read(dag_id: str) -> bool:
        return manager.is_authorized_dag(
            method="GET",
            access_entity=DagAccessEntity.RUN,
            details=DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id)),
            user=user,
        )

    return Readable(manager.get_authorized_dag_ids(user=user, method="GET"), may_read)


ReadableDep = Annotated[Readable, Depends(_readable)]
