"""Contracts: rules that every row must keep, as data. The result names each rule that a row breaks.

    [[rules]]                         [[rules]]                         [[rules]]
    column = "id"                     column = "amount"                 name = "big orders have a buyer"
    not-null = true                   min = 0                           expression = "amount < 1000 OR buyer IS NOT NULL"
    unique = true                     max = 100_000

    rows ── Contract.check ──► good   rows that keep all rules
                               bad    the others, with `violations`, the names of the rules, and `reason`, the same as a text

As in SQL, a null value breaks only the rule not-null, and an expression that is null breaks nothing. `unique` compares the rows of one
batch: a stream can use it in `foreachBatch`.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

import msgspec

from pocketmq.errors import InvalidSetting
from pocketmq.pipelines.core.libraries import SPARK_ERRORS, Column, DataFrame, Window, error_text
from pocketmq.pipelines.core.libraries import functions as f
from pocketmq.pipelines.core.rows import MESSAGE, REASON

VIOLATIONS: Final = "violations"
MAX_RULES: Final = 1000
_ORDER: Final = ("storeTimestamp", "topic", "brokerName", "queueId", "queueOffset")

Value = str | int | float | bool


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """A rule for a column, or for a row by a SQL expression. Each check is a violation of its own."""

    name: str = ""
    """The name of the violation; by default column and check."""
    column: str = ""
    not_null: bool = False
    type: str = ""
    """The text can be read as this Spark type: `date`, `decimal(10,2)`."""
    min: Value | None = None
    max: Value | None = None
    matches: str = ""
    """A Java regular expression that must match the whole text."""
    one_of: list[Value] = []
    unique: bool = False
    expression: str = ""


class Check(NamedTuple):
    """One check of a rule, with the name of its violation."""

    name: str
    rule: Rule
    kind: str


class Checked(NamedTuple):
    """The rows of a contract check."""

    rows: DataFrame
    """All rows, with `violations` and `reason`, which are empty and null for a good row."""
    good: DataFrame
    bad: DataFrame


class Contract:
    """Rules for rows."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        if not rules:
            raise InvalidSetting("a contract needs at least one rule")
        if len(rules) > MAX_RULES:
            raise InvalidSetting(f"a contract has at most {MAX_RULES:,} rules, but this one has {len(rules):,}")
        self.rules = tuple(rules)
        self.checks = tuple(check for number, rule in enumerate(rules, 1) for check in _checks(rule, number))
        names = [check.name for check in self.checks]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InvalidSetting(f"two rules have the name {twice!r}; rename one of them")

    @classmethod
    def of(cls, rules: Iterable[Mapping[str, Any]]) -> "Contract":
        """From plain data, as in a TOML file; InvalidSetting names the wrong rule and key."""
        return cls([_rule(rule, number) for number, rule in enumerate(rules, 1)])

    @property
    def names(self) -> list[str]:
        """The names of all possible violations."""
        return [check.name for check in self.checks]

    def check(self, rows: DataFrame) -> Checked:
        """Check rows. Rows that have a `reason` already are bad, and are not checked."""
        if rows.isStreaming and any(check.kind == "unique" for check in self.checks):
            raise InvalidSetting("the rule unique compares the rows of a batch; in a stream, check inside foreachBatch")
        self._check_columns(rows)
        was_bad = f.col(REASON).isNotNull() if REASON in rows.columns else f.lit(False)
        broken = [f.when(_is_broken(check, rows), f.lit(check.name)) for check in self.checks]
        names = f.array_compact(f.array(*broken))
        found = rows.withColumn(VIOLATIONS, f.when(was_bad, f.array().cast("array<string>")).otherwise(names))
        before = f.col(REASON) if REASON in rows.columns else f.lit(None).cast("string")
        joined = f.when(f.size(VIOLATIONS) > 0, f.concat_ws("; ", VIOLATIONS))
        found = found.withColumn(REASON, f.coalesce(before, joined))
        is_good = f.col(REASON).isNull()
        return Checked(found, found.where(is_good).drop(VIOLATIONS, REASON), found.where(~is_good))

    def _check_columns(self, rows: DataFrame) -> None:
        for rule in self.rules:
            try:
                rows.select(f.expr(rule.expression) if rule.expression else f.col(rule.column)).columns  # noqa: B018
            except SPARK_ERRORS as error:
                top = rule.column.partition(".")[0]
                near = get_close_matches(top, rows.columns, n=1)
                hint = (
                    f"; did you mean {near[0]!r}?" if top and near else f"; the columns are {', '.join(rows.columns)}"
                )
                what = f"the expression {rule.expression!r}" if rule.expression else f"the column {rule.column!r}"
                raise InvalidSetting(
                    f"Spark cannot evaluate {what} of the contract on these rows: {error_text(error)}{hint}"
                ) from None


def _rule(data: Mapping[str, Any], number: int) -> Rule:
    known = set(Rule.__struct_encode_fields__)
    for key in data:
        if key not in known:
            near = get_close_matches(str(key).replace("_", "-"), sorted(known), n=1)
            hint = f"did you mean {near[0]}?" if near else f"the keys are {', '.join(sorted(known))}"
            raise InvalidSetting(f"rule {number} of the contract has an unknown key {key!r}; {hint}")
    try:
        return msgspec.convert(dict(data), Rule)
    except msgspec.ValidationError as error:
        raise InvalidSetting(f"rule {number} of the contract: {str(error).replace('`', '')}") from None


def _checks(rule: Rule, number: int) -> list[Check]:
    """The checks of a rule. If it has one, the rule's name is the violation's; if it has several, each adds its text."""
    if rule.expression:
        if rule.column:
            raise InvalidSetting(
                f"rule {number} of the contract: an expression names its columns itself; remove column"
            )
        return [Check(rule.name or f"not {rule.expression}", rule, "expression")]
    if not rule.column:
        raise InvalidSetting(f"rule {number} of the contract needs a column, or an expression")
    words = {
        "not-null": "is null" if rule.not_null else "",
        "type": f"is not {rule.type}" if rule.type else "",
        "min": "" if rule.min is None else f"is below {rule.min}",
        "max": "" if rule.max is None else f"is above {rule.max}",
        "matches": f"does not match {rule.matches}" if rule.matches else "",
        "one-of": f"is not one of {', '.join(map(str, rule.one_of))}" if rule.one_of else "",
        "unique": "is not unique" if rule.unique else "",
    }
    texts = {kind: text for kind, text in words.items() if text}
    if not texts:
        raise InvalidSetting(
            f"rule {number} of the contract has no check for the column {rule.column!r}; add one of {', '.join(words)}"
        )
    if rule.name and len(texts) == 1:
        return [Check(rule.name, rule, kind) for kind in texts]
    return [Check(f"{rule.name or rule.column} {text}", rule, kind) for kind, text in texts.items()]


def _is_broken(check: Check, rows: DataFrame) -> Column:
    """Whether a row breaks the check; null, which breaks nothing, if that is unknown."""
    rule, column = check.rule, f.col(check.rule.column or "*")
    match check.kind:
        case "not-null":
            return column.isNull()
        case "type":
            return column.isNotNull() & column.try_cast(rule.type).isNull()
        case "min":
            return column < f.lit(rule.min)
        case "max":
            return column > f.lit(rule.max)
        case "matches":
            return ~column.rlike(f"^(?:{rule.matches})$")
        case "one-of":
            return ~column.isin(rule.one_of)
        case "unique":
            return column.isNotNull() & (f.row_number().over(_same(column, rows)) > 1)
    return ~f.expr(rule.expression)


def _same(column: Column, rows: DataFrame) -> Any:
    """The rows with the same value, in the order of their topic if the columns give it: the first of them is good."""
    inside = rows.select(f"{MESSAGE}.*").columns if MESSAGE in rows.columns else []
    if set(_ORDER) <= set(inside):
        return Window.partitionBy(column).orderBy(*(f"{MESSAGE}.{name}" for name in _ORDER))
    order = _ORDER if set(_ORDER) <= set(rows.columns) else (f.monotonically_increasing_id(),)
    return Window.partitionBy(column).orderBy(*order)
