"""The pages by their names, each made from its artifacts when it is asked for."""

from __future__ import annotations

from turncredit.views.pages.frame import Place, render
from turncredit.views.viewer import compare_page, experiment_page, rollout_page, round_page, sources, trail_page
from turncredit.views.viewer.context import REFRESH, Context, Query
from turncredit.views.viewer.sources import Experiments


class Viewer(Context):
    """All pages. Each raises UserError, or Absent for what is not there."""

    def first(self) -> str:
        """The page to begin with: the list, or the only thing there is."""
        if len(self.found) != 1 or self.given.problems():
            return self.home()
        name, source = next(iter(self.found.items()))
        return self.experiment(name) if isinstance(source, Experiments) else self.round(name, sources.TABLE, {})

    def home(self) -> str:
        """The experiments and tables."""
        entries = []
        for name, source in self.found.items():
            if isinstance(source, Experiments):
                entries.append(
                    (name, self.addresses.experiment(name), self.addresses.where(source.folder), "experiment")
                )
            else:
                link = self.addresses.round(name, sources.TABLE)
                entries.append((name, link, self.addresses.where(source.about.turns), "table of turns"))
        frame = self.frame([Place("turncredit", None)], refresh=REFRESH if self.addresses.live else 0)
        problems = [self.addresses.where(line) for line in self.given.problems()]
        return render("home.html.j2", frame, entries=entries, problems=problems)

    def experiment(self, name: str) -> str:
        """An experiment: its learning curves, and its runs round by round."""
        return experiment_page.page(self, name)

    def round(self, name: str, round_: str, query: Query) -> str:
        """The rollouts of a round as a list."""
        return round_page.page(self, name, round_, query)

    def group(self, name: str, round_: str, query: Query) -> str:
        """The siblings of a group, side by side."""
        return rollout_page.group(self, name, round_, query)

    def rollout(self, name: str, round_: str, query: Query) -> str:
        """One rollout turn by turn."""
        return rollout_page.rollout(self, name, round_, query)

    def pair(self, name: str, round_: str, query: Query) -> str:
        """Two siblings side by side, the failure on the left."""
        return rollout_page.pair(self, name, round_, query)

    def compare(self, name: str, query: Query) -> str:
        """Two methods on the rollouts of a round, or two rounds of runs."""
        return compare_page.page(self, name, query)

    def trail(self, name: str, query: Query) -> str:
        """A number of the report, an artifact, or all numbers, with what they were made from."""
        return trail_page.page(self, name, query)

    def problem(self, line: str, title: str = "This page cannot be shown") -> str:
        """A page that says what is wrong."""
        places = self.home_place() or [Place("turncredit", None)]
        return render("problem.html.j2", self.frame(places), title=title, line=line)
