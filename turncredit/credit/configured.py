"""Methods as a configuration names them: its own definitions, or the built-in ones."""

from __future__ import annotations

from turncredit.config import Experiment
from turncredit.credit.compose import Method
from turncredit.credit.resolving import resolve
from turncredit.errors import UserError
from turncredit.judges.config import Ask, labels_name


def configured_method(experiment: Experiment, name: str) -> Method:
    """The method that the configuration calls `name`. Raises UserError that names the key of the configuration."""
    entry = experiment.define.get(name)
    try:
        return resolve(experiment.definition(name), name)
    except UserError as error:
        compared_only = name in (experiment.audit.methods or ()) and name not in experiment.methods
        where = f"define.{name}" if entry else "audit.methods" if compared_only else "methods"
        raise UserError(f"config: {where}: {error}") from None


def ask_of(method: Method) -> Ask:
    """What `method` asks of the judge; a role where it does not say."""
    return method.asks or "role"


def labels_of(experiment: Experiment, name: str) -> str:
    """The name of the labels that the method `name` reads: judge and question, such as `rule-role`."""
    return labels_name(experiment.judge, ask_of(configured_method(experiment, name)))
