"""What the pages share: what is looked at, the addresses of pages, and the way from the first page to each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from turncredit.config.layout import of_sft
from turncredit.views.pages.frame import Frame, Place
from turncredit.views.viewer import activity, sources
from turncredit.views.viewer.activity import Activity
from turncredit.views.viewer.addresses import SCRIPTS, STYLES, Addresses
from turncredit.views.viewer.books import Shelf
from turncredit.views.viewer.given import Given
from turncredit.views.viewer.records import Overview, Records
from turncredit.views.viewer.sources import Experiments, Source, method_of

#: Seconds after which a page asks for what is new.
REFRESH = 5
#: What an address says after its question mark.
Query = Mapping[str, str]


@dataclass
class Context:
    """What is looked at, the addresses of its pages, and what Snakemake does (`activity_of` an experiment's folder)."""

    given: Given
    addresses: Addresses = field(default_factory=Addresses)
    activity_of: Callable[[Path], Activity] = lambda _: activity.NOTHING
    shelf: Shelf = field(default_factory=Shelf)
    records: dict[Path, Records] = field(default_factory=dict)

    @property
    def found(self) -> Mapping[str, Source]:
        """The experiments and tables that are there now, by name."""
        return self.given.found()

    def overview(self, source: Experiments, wait: float | None = None) -> Overview:
        """How far an experiment's runs are, as far as it is known after `wait` seconds (`Records.overview`)."""
        return self.records.setdefault(source.folder, Records(source)).overview(wait)

    def frame(self, places: list[Place], notes: list[str] | None = None, refresh: int = 0) -> Frame:
        """What is around a page."""
        address = self.addresses
        lines = [address.where(line) for line in notes or []]
        return Frame(STYLES, SCRIPTS, address.asset, places, lines, refresh, address.policy)

    def home_place(self) -> list[Place]:
        """The link to the list of experiments and tables; none if the list has one entry and no problems."""
        alone = len(self.found) == 1 and not self.given.problems()
        return [] if alone else [Place("turncredit", self.addresses.home())]

    def above(self, name: str) -> list[Place]:
        """The way to a source's rounds; that of a table is the table's own page."""
        if isinstance(self.found.get(name), Experiments):
            return [*self.home_place(), Place(name, self.addresses.experiment(name))]
        return self.home_place()

    def round_words(self, name: str, round_: str) -> str:
        """A round's name as a heading has it."""
        if round_ == sources.TABLE:
            return name
        policy, seed, number = round_.split("/")
        seed, number = seed.removeprefix("seed"), f"{int(number.removeprefix('round'))}"
        if of_sft(policy):
            return f"{policy.partition('-')[0]} policy, seed {seed}, round {number}"
        return f"{policy}, seed {seed}, round {number}"

    def round_place(self, name: str, round_: str, query: Query | None = None) -> Place:
        """The list of a round's rollouts, as a step on the way."""
        return Place(self.round_words(name, round_), self.addresses.round(name, round_, query))

    def own_method(self, round_: str) -> str | None:
        """The method whose run sampled a round's turns; None for a table and for turns that methods share."""
        return None if round_ == sources.TABLE else method_of(round_)
