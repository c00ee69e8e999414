"""Context of steps of migrations between stores."""

from __future__ import annotations

from typing import TypeVar

from activities.lifecycle.step import StepTask
from clients.pulsar.admin.access import AdminAccess
from clients.stores import Access
from models.lifecycle.cluster import StoresInput

StoresInputT_co = TypeVar("StoresInputT_co", bound=StoresInput, covariant=True)


class StoresTask(StepTask[StoresInputT_co]):
    """One attempt at a step of a migration between stores. Arguments as in `StepTask`."""

    @property
    def access(self) -> Access:
        """Credentials and timeout for all stores of the input.

        Raises:
            NoCredentials: the settings lack credentials that the input names.
        """
        return Access.of_each(self.input.store_credentials, self.runtime.stores_of)

    @property
    def admin(self) -> AdminAccess:
        """Access to brokers; errors as in `access`."""
        return self.runtime.admin_of(self.input.credentials)
