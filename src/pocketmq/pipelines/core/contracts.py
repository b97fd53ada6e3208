"""Contracts: what must hold of every row, as data. Each rule that a row breaks is named.

    [[rules]]                         [[rules]]                         [[rules]]
    column = "id"                     column = "amount"                 name = "big orders have a buyer"
    not-null = true                   min = 0                           expression = "amount < 1000 OR buyer IS NOT NULL"
    unique = true                     max = 100_000

    rows ── Contract.check ──► good   rows that keep all rules
                               bad    the others, with `violations`, the names of the rules, and `reason`, the same as a sentence

As in SQL, a value that is null breaks only the rule that it may not be null, and an expression that is null breaks nothing.
`unique` looks at the rows of one batch: a stream has it in `foreachBatch`.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

import msgspec

from pocketmq.errors import InvalidSetting
from pocketmq.pipelines.core.libraries import SPARK_ERRORS, Column, DataFrame, Window, told
from pocketmq.pipelines.core.libraries import functions as f
from pocketmq.pipelines.core.rows import MESSAGE, REASON

VIOLATIONS: Final = "violations"
MAX_RULES: Final = 1000
_ORDER: Final = ("storeTimestamp", "topic", "brokerName", "queueId", "queueOffset")

Value = str | int | float | bool


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    """What must hold of a column, or of a row by an expression of SQL. Each check is a violation of its own."""

    name: str = ""
    """How its violation is called; else it is made from column and check."""
    column: str = ""
    not_null: bool = False
    type: str = ""
    """The text can be read as this type of Spark: `date`, `decimal(10,2)`."""
    min: Value | None = None
    max: Value | None = None
    matches: str = ""
    """A regular expression of Java that the whole text must match."""
    one_of: list[Value] = []
    unique: bool = False
    expression: str = ""


class Check(NamedTuple):
    """One thing that must hold: what its violation is called, which rule it is of, and which check of it."""

    name: str
    rule: Rule
    kind: str


class Checked(NamedTuple):
    """Rows by whether they keep a contract."""

    rows: DataFrame
    """All of them, with `violations` and `reason`: both empty or null for a good one."""
    good: DataFrame
    bad: DataFrame


class Contract:
    """Rules for rows."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        if not rules:
            raise InvalidSetting("a contract needs at least one rule")
        if len(rules) > MAX_RULES:
            raise InvalidSetting(f"a contract has at most {MAX_RULES:,} rules, and this one has {len(rules):,}")
        self.rules = tuple(rules)
        self.checks = tuple(check for number, rule in enumerate(rules, 1) for check in _checks(rule, number))
        names = [check.name for check in self.checks]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InvalidSetting(f"two rules are called {twice!r}: give one of them another name")

    @classmethod
    def of(cls, rules: Iterable[Mapping[str, Any]]) -> "Contract":
        """Out of plain data, as in a TOML file; InvalidSetting names the rule and the key that are wrong."""
        return cls([_rule(rule, number) for number, rule in enumerate(rules, 1)])

    @property
    def names(self) -> list[str]:
        """What violations may be called."""
        return [check.name for check in self.checks]

    def check(self, rows: DataFrame) -> Checked:
        """Rows by whether they keep the rules. Rows that have a `reason` already are bad by it alone."""
        if rows.isStreaming and any(check.kind == "unique" for check in self.checks):
            raise InvalidSetting("the rule unique looks at a batch: check a stream inside of foreachBatch")
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
                hint = f"; did you mean {near[0]!r}?" if top and near else f"; there are: {', '.join(rows.columns)}"
                what = f"the expression {rule.expression!r}" if rule.expression else f"the column {rule.column!r}"
                raise InvalidSetting(
                    f"the contract asks for {what}, which the rows cannot tell: {told(error)}{hint}"
                ) from None


def _rule(told_rule: Mapping[str, Any], number: int) -> Rule:
    known = set(Rule.__struct_encode_fields__)
    for key in told_rule:
        if key not in known:
            near = get_close_matches(str(key).replace("_", "-"), sorted(known), n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(known))}"
            raise InvalidSetting(f"rule {number} of the contract: there is no key {key!r}; {hint}")
    try:
        return msgspec.convert(dict(told_rule), Rule)
    except msgspec.ValidationError as error:
        raise InvalidSetting(f"rule {number} of the contract: {str(error).replace('`', '')}") from None


def _checks(rule: Rule, number: int) -> list[Check]:
    """The checks of a rule, by name. A rule of one check may be called by a name of its own; of several, each adds its words."""
    if rule.expression:
        if rule.column:
            raise InvalidSetting(
                f"rule {number} of the contract: an expression names its columns itself; leave out column"
            )
        return [Check(rule.name or f"not {rule.expression}", rule, "expression")]
    if not rule.column:
        raise InvalidSetting(f"rule {number} of the contract needs a column, or an expression")
    words = {
        "not-null": "is null" if rule.not_null else "",
        "type": f"is no {rule.type}" if rule.type else "",
        "min": "" if rule.min is None else f"is below {rule.min}",
        "max": "" if rule.max is None else f"is above {rule.max}",
        "matches": f"does not match {rule.matches}" if rule.matches else "",
        "one-of": f"is none of {', '.join(map(str, rule.one_of))}" if rule.one_of else "",
        "unique": "is not unique" if rule.unique else "",
    }
    told_of = {kind: text for kind, text in words.items() if text}
    if not told_of:
        raise InvalidSetting(
            f"rule {number} of the contract says nothing about {rule.column!r}: give one of {', '.join(words)}"
        )
    if rule.name and len(told_of) == 1:
        return [Check(rule.name, rule, kind) for kind in told_of]
    return [Check(f"{rule.name or rule.column} {text}", rule, kind) for kind, text in told_of.items()]


def _is_broken(check: Check, rows: DataFrame) -> Column:
    """Whether a row breaks it; null when nobody can tell, which breaks nothing."""
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
    """The rows with the same value, in the order of their topic where they tell it: the first of them is the good one."""
    inside = rows.select(f"{MESSAGE}.*").columns if MESSAGE in rows.columns else []
    if set(_ORDER) <= set(inside):
        return Window.partitionBy(column).orderBy(*(f"{MESSAGE}.{name}" for name in _ORDER))
    order = _ORDER if set(_ORDER) <= set(rows.columns) else (f.monotonically_increasing_id(),)
    return Window.partitionBy(column).orderBy(*order)
