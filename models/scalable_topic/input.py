"""Input of the migration of a regular topic to a scalable one (PIP-475)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, Field

from models.addresses import AdminUrl
from models.lifecycle.fields import Bool, Duration
from models.lifecycle.input import MigrationInput
from models.store_url import StoreAddress, StoreUrl, parse_store_url

KIND = "scalable-topic"


_TOPIC = re.compile(r"persistent://[^/]+/[^/]+/.+")
_PARTITION = re.compile(r"-partition-\d+$")


def _whole_topic(name: str) -> str:
    if not _TOPIC.fullmatch(name) or _PARTITION.search(name):
        raise ValueError(f"{name!r} is not a whole stored topic; write persistent://tenant/namespace/topic")
    return name


class ScalableTopicInput(MigrationInput):
    """Input of `ScalableTopicMigration`.

    Attributes:
        cluster: `clusterName` of its brokers.
        hold_before_cutover: wait for `proceed` before the topic becomes scalable, since there is no way back then.
        metadata_url: the metadata store of its brokers.
        admin_urls: addresses of the admin interface, of one broker or several.
        credentials: name of the credentials in the worker's settings; empty for the common ones.
        topic: `persistent://tenant/namespace/topic`, a whole one.
        force: do not wait for clients that cannot follow, nor for ordered subscriptions with a backlog.
        client_timeout: how long is waited for them; then nothing is changed.
        drain_timeout: how long old messages may take to be consumed, while the policies of the namespace are held.
    """

    hold_before_cutover: Bool = True
    metadata_url: StoreAddress
    admin_urls: tuple[AdminUrl, ...] = Field(min_length=1)
    credentials: str = ""
    topic: Annotated[str, AfterValidator(_whole_topic)]
    force: Bool = False
    client_timeout: Duration = Field(default=timedelta(days=1), ge=timedelta(0), le=timedelta(days=90))
    drain_timeout: Duration = Field(default=timedelta(hours=1), gt=timedelta(0), le=timedelta(days=30))

    @property
    def store(self) -> StoreUrl:
        """The metadata store, taken apart."""
        return parse_store_url(self.metadata_url)

    @property
    def workflow_id(self) -> str:
        """One such migration for each cluster: the next one puts back what a run that was terminated had changed."""
        return f"{KIND}/{self.cluster}"

    @property
    def target_name(self) -> str:
        """The topic."""
        return self.topic

    @property
    def summary(self) -> str:
        """What becomes scalable."""
        return f"{self.topic} of {self.cluster} becomes scalable{' (dry run)' if self.dry_run else ''}"
