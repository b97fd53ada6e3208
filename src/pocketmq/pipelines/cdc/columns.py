"""The columns of rows, by the schemas that Debezium sends, and their values from JSON.

    schema of a message      int64, io.debezium.time.MicroTimestamp      bytes, Decimal, scale 2
    JSON                     1767225600000000                            "Tg=="
    column                   timestamp, in UTC                           decimal(10,2)

Without a schema, columns have the types that `--schema` or the table gives them; others have that of their JSON value. An object is then
kept as its JSON text. A value that does not fit its column makes a reason, never a null.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, Final, NamedTuple

import msgspec

from pocketmq.errors import InvalidSetting, PipelineFailed
from pocketmq.pipelines.cdc.changes import OWN, REASON, ROW, SCHEMA, Counts
from pocketmq.pipelines.core.libraries import Column, DataFrame, types
from pocketmq.pipelines.core.libraries import functions as f
from pocketmq.pipelines.core.rows import parse_schema

Made = Callable[[Column], Column]
MAX_DIGITS: Final = 38
_PARSED: Final = "__parsed"
_CORRUPT: Final = "__corrupt"
_SHOWN_CHARS: Final = 60
_WHOLE_NUMBER: Final = f"decimal({MAX_DIGITS},0)"
_HEX: Final = "0123456789ABCDEF"
_HEX_OF_38_DIGITS: Final = 32
_SIMPLE: Final = {
    "int8": "int",
    "int16": "int",
    "int32": "int",
    "int64": "bigint",
    "float": "float",
    "float32": "float",
    "double": "double",
    "float64": "double",
    "boolean": "boolean",
    "string": "string",
    "date": "date",
    "timestamp": "timestamp",
}
_AVRO: Final = {"int": "int32", "long": "int64", "enum": "string", "fixed": "bytes"}
"""Types of Avro, by their names in Debezium's schemas."""
_AVRO_LOGICAL: Final = {
    "date": "date",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "time-millis": "string",
    "time-micros": "string",
    "uuid": "string",
}


class Field(NamedTuple):
    """A column: its type in JSON, its type in the table, and how the one becomes the other."""

    name: str
    wire: str
    type: str
    made: Made | None = None

    def value(self, parsed: Column) -> Column:
        return parsed if self.made is None else self.made(parsed)


def fields_of(schema: str) -> list[Field]:
    """The columns of a row, by the schema of its message."""
    try:
        found = msgspec.json.decode(schema)
        rows = [one for one in found["fields"] if one["field"] in ("after", "before") and "fields" in one]
        return [_named(one["field"], one) for one in rows[0]["fields"]]
    except (msgspec.MsgspecError, KeyError, TypeError, IndexError):
        raise PipelineFailed(
            f"a message has a schema that is not Debezium's, as `after` or its columns are missing: {schema[:200]}"
        ) from None


def of_avro(schema: str) -> str:
    """The schema of an envelope in Avro, in the words of the schemas in JSON messages."""
    known: dict[str, Any] = {}
    found = _of_avro(msgspec.json.decode(schema), known)
    return msgspec.json.encode(found).decode()


def _of_avro(schema: Any, known: dict[str, Any]) -> dict[str, Any]:
    if isinstance(schema, list):
        return _of_avro(next((one for one in schema if one != "null"), "string"), known)
    if isinstance(schema, str):
        return known.get(schema) or {"type": _AVRO.get(schema, schema)}
    kind, name = schema["type"], schema.get("connect.name")
    if schema.get("logicalType") == "decimal":
        return {"type": f"decimal({schema['precision']},{schema.get('scale', 0)})"}
    if logical := _AVRO_LOGICAL.get(schema.get("logicalType", "")):
        return {"type": logical}
    if isinstance(kind, dict | list):
        return _of_avro(kind, known)
    made: dict[str, Any] = {"type": _AVRO.get(kind, kind), **({"name": name} if name else {})}
    if kind == "record":
        made |= {"type": "struct", "fields": []}
        space = schema.get("namespace", "")
        known |= {schema["name"]: made, f"{space}.{schema['name']}": made}
        for one in schema["fields"]:
            made["fields"].append({**_of_avro(one["type"], known), "field": one["name"]})
    elif kind == "array":
        made["items"] = _of_avro(schema["items"], known)
    elif kind == "map":
        made["values"] = _of_avro(schema["values"], known)
    return made


def _named(name: str, schema: Mapping[str, Any]) -> Field:
    """A column of a schema."""
    kind, meaning = schema["type"], schema.get("name")
    if meaning in _MEANINGS:
        return _MEANINGS[meaning](name, schema)
    if kind == "bytes":
        return Field(name, "string", "binary", lambda text: f.try_to_binary(text, f.lit("base64")))
    if kind.startswith("decimal("):
        return Field(name, kind, kind)
    if kind == "array":
        item = _named("", schema["items"])
        every = None if item.made is None else lambda array: f.transform(array, item.value)
        return Field(name, f"array<{item.wire}>", f"array<{item.type}>", every)
    if kind == "map":
        value = _named("", schema["values"])
        each = None if value.made is None else lambda one: f.transform_values(one, lambda _, of: value.value(of))
        return Field(name, f"map<string,{value.wire}>", f"map<string,{value.type}>", each)
    if kind == "struct":
        return _struct(name, [_named(one["field"], one) for one in schema["fields"]])
    return Field(name, _SIMPLE[kind], _SIMPLE[kind])


def _struct(name: str, parts: Sequence[Field]) -> Field:
    def make(struct: Column) -> Column:
        made = f.struct(*(part.value(struct.getField(part.name)).alias(part.name) for part in parts))
        return f.when(struct.isNotNull(), made)

    wire, kind = (
        ", ".join(f"`{part.name}`: {text}" for part, text in pairs)
        for pairs in (
            [(part, part.wire) for part in parts],
            [(part, part.type) for part in parts],
        )
    )
    has_conversion = any(part.made is not None for part in parts)
    return Field(name, f"struct<{wire}>", f"struct<{kind}>", make if has_conversion else None)


def _simply(wire: str, kind: str, made: Made) -> Callable[[str, Mapping[str, Any]], Field]:
    return lambda name, schema: Field(name, wire, kind, made)


def _as_time(micros: Made) -> Made:
    """A time of the day, as text."""
    return lambda number: f.date_format(f.timestamp_micros(micros(number)), "HH:mm:ss.SSSSSS")


def _decimal(name: str, schema: Mapping[str, Any]) -> Field:
    parameters = schema.get("parameters", {})
    scale = int(parameters.get("scale", 0))
    precision = min(MAX_DIGITS, int(parameters.get("connect.decimal.precision", MAX_DIGITS)))
    kind = f"decimal({max(precision, scale)},{scale})"
    return Field(name, "string", kind, lambda text: _digits(text, f.lit(scale)).try_cast(kind))


def _exact_text(name: str, schema: Mapping[str, Any]) -> Field:
    """A number whose scale is its own: exact as a text only."""
    return Field(
        name,
        "struct<scale: int, value: string>",
        "string",
        lambda number: _digits(number.getField("value"), number.getField("scale")),
    )


def _digits(text: Column, scale: Column) -> Column:
    """A whole number in base64, the most significant byte first, as decimal digits with a point before the last `scale` of them."""
    digits = f.hex(f.try_to_binary(text, f.lit("base64")))
    is_negative = f.substring(digits, 1, 1) >= "8"
    # Of a negative number, all bits are turned: that is one less than its amount.
    amount = f.when(is_negative, f.translate(digits, _HEX, _HEX[::-1])).otherwise(digits)
    whole = f.lpad(amount, _HEX_OF_38_DIGITS, "0")
    number = f.lit(0).cast(_WHOLE_NUMBER)
    for part in range(_HEX_OF_38_DIGITS // 8):
        more = f.conv(f.substring(whole, 8 * part + 1, 8), 16, 10).cast(_WHOLE_NUMBER)
        number = f.try_add(f.try_multiply(number, f.lit(2**32).cast(_WHOLE_NUMBER)), more)
    one = f.when(is_negative, 1).otherwise(0).cast(_WHOLE_NUMBER)
    plain = f.try_add(number, one).cast(_WHOLE_NUMBER).cast("string")
    behind_point = f.greatest(scale, f.lit(0))
    filled = f.concat(f.repeat(f.lit("0"), f.greatest(behind_point + 1 - f.length(plain), f.lit(0))), plain)
    before = f.concat(
        f.substr(filled, f.lit(1), f.length(filled) - behind_point), f.repeat(f.lit("0"), f.greatest(-scale, f.lit(0)))
    )
    behind = f.when(scale > 0, f.concat(f.lit("."), f.right(filled, behind_point))).otherwise("")
    signed = f.concat(f.when(is_negative, "-").otherwise(""), before, behind)
    return f.when(f.length(digits) <= _HEX_OF_38_DIGITS, signed)


_MEANINGS: Final[dict[str, Callable[[str, Mapping[str, Any]], Field]]] = {
    "io.debezium.time.Date": _simply("int", "date", f.date_from_unix_date),
    "org.apache.kafka.connect.data.Date": _simply("int", "date", f.date_from_unix_date),
    "io.debezium.time.Timestamp": _simply("bigint", "timestamp", f.timestamp_millis),
    "org.apache.kafka.connect.data.Timestamp": _simply("bigint", "timestamp", f.timestamp_millis),
    "io.debezium.time.MicroTimestamp": _simply("bigint", "timestamp", f.timestamp_micros),
    "io.debezium.time.NanoTimestamp": _simply(
        "bigint", "timestamp", lambda number: f.timestamp_micros(f.floor(number / 1000))
    ),
    "io.debezium.time.ZonedTimestamp": _simply("string", "timestamp", lambda text: text.try_cast("timestamp")),
    "io.debezium.time.Time": _simply("bigint", "string", _as_time(lambda number: number * 1000)),
    "org.apache.kafka.connect.data.Time": _simply("bigint", "string", _as_time(lambda number: number * 1000)),
    "io.debezium.time.MicroTime": _simply("bigint", "string", _as_time(lambda number: number)),
    "io.debezium.time.NanoTime": _simply("bigint", "string", _as_time(lambda number: f.floor(number / 1000))),
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "io.debezium.data.VariableScaleDecimal": _exact_text,
}
"""Types that have a meaning beside their form, by the names that Kafka Connect and Debezium give them."""


def with_types(fields: Iterable[Field], wanted: Mapping[str, str]) -> list[Field]:
    """The same columns with the types that a user chose."""

    def changed(field: Field) -> Field:
        kind = wanted.get(field.name.lower())
        if kind is None or kind == field.type:
            return field
        return Field(field.name, field.wire, kind, lambda parsed: field.value(parsed).try_cast(kind))

    return [changed(field) for field in fields]


def inferred(changes: DataFrame, known: Mapping[str, str]) -> list[Field]:
    """The columns of changes without schemas: `known` types by name, and those of the values of others."""
    rows = changes.select(f.try_parse_json(ROW).alias(ROW))
    [[text]] = rows.agg(f.schema_of_variant_agg(ROW)).collect()
    found = {}
    for name, kind in _parts_of(text):
        if name.lower() in known:
            found[name] = known[name.lower()]
        elif kind != "VOID":
            found[name] = _PLAIN.get(kind.partition("(")[0], "string")
    return [Field(name, kind, kind) for name, kind in found.items()]


_PLAIN: Final = {"BIGINT": "bigint", "DECIMAL": "double", "DOUBLE": "double", "FLOAT": "double", "BOOLEAN": "boolean"}


def _parts_of(text: str | None) -> list[tuple[str, str]]:
    """The names and types in `OBJECT<id: BIGINT, place: OBJECT<…>>`."""
    if text is None or not text.startswith("OBJECT<"):
        return []
    parts, depth, start, is_quoted = [], 0, len("OBJECT<"), False
    for at, mark in enumerate(text[start:-1], start):
        is_quoted ^= mark == "`"
        depth += 0 if is_quoted else {"<": 1, "(": 1, ">": -1, ")": -1}.get(mark, 0)
        if mark == "," and depth == 0 and not is_quoted:
            parts.append(text[start:at])
            start = at + 1
    named = [
        part.strip().rpartition(": ") if "<" not in part else part.strip().partition(": ")
        for part in [*parts, text[start:-1]]
    ]
    return [(name.strip("`").replace("``", "`"), kind) for name, _, kind in named if name]


def typed(changes: DataFrame, fields: Sequence[Field], keys: Sequence[str]) -> DataFrame:
    """Changes with the columns of their rows, and with a reason if a value does not fit or a key is missing."""
    wire = parse_schema(", ".join(f"`{field.name}` {field.wire}" for field in fields))
    inner = types.StructType([*wire.fields, types.StructField(_CORRUPT, types.StringType())])
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    parsed = changes.withColumn(_PARSED, f.from_json(ROW, inner, options))
    raw = {field.name: f.col(f"{_PARSED}.`{field.name}`") for field in fields}
    rows = parsed.select(
        *(name for name in OWN if name in changes.columns),
        _PARSED,
        *(field.value(raw[field.name]).alias(field.name) for field in fields),
    )
    misfits = [_misfit(field, raw[field.name]) for field in fields]
    missing = [f.when(f.col(f"`{key}`").isNull(), f.lit(f"{key} is missing, and it is a key")) for key in keys]
    corrupt = f.when(f.col(f"{_PARSED}.{_CORRUPT}").isNotNull(), f.lit("the row does not fit its columns"))
    parts = [f.nullif(f.concat_ws("; ", *every), f.lit("")) for every in (misfits, missing)]
    return rows.withColumn(REASON, f.coalesce(REASON, *parts, corrupt)).drop(_PARSED, ROW, SCHEMA)


def _misfit(field: Field, raw: Column) -> Column:
    """A value that is in the JSON and not in its column."""
    found = f.get_json_object(ROW, f"$['{field.name}']")
    shown = f.substring(found, 1, _SHOWN_CHARS)
    text = f.concat(f.lit(f"{field.name} = "), shown, f.lit(f" is not {field.type}"))
    is_lost = f.col(f"{_PARSED}.{_CORRUPT}").isNotNull() & raw.isNull() & found.isNotNull()
    if field.made is not None:
        is_lost = is_lost | (raw.isNotNull() & f.col(f"`{field.name}`").isNull())
    return f.when(is_lost, text)


def check_names(fields: Sequence[Field], keys: Sequence[str], added: Sequence[str]) -> None:
    """InvalidSetting for keys that the rows do not have, and for columns that this pipeline adds."""
    names = [field.name for field in fields]
    if lacking := [key for key in keys if key not in names]:
        raise InvalidSetting(f"--keys {lacking[0]}: the changes have no such column; they have {', '.join(names)}")
    lower = {*added, *OWN}
    if clash := [name for name in names if name.lower() in lower]:
        raise InvalidSetting(f"the changes have a column {clash[0]}, and this pipeline needs the name for its own")


class Layout(NamedTuple):
    """The columns of the changes with one schema."""

    schema: str
    fields: Sequence[Field]


def layouts_of(
    changes: DataFrame, found: Counts, table: types.StructType | None, chosen: Mapping[str, str], name: str
) -> list[Layout]:
    """The columns of all changes of a batch, for a table that exists or not; `chosen` types by columns in small letters."""
    layouts: list[Layout] = []
    kinds = table
    for schema in found.schemas:
        if schema:
            fields = with_types(fields_of(schema), chosen)
        else:
            own = changes.where((f.col(SCHEMA) == "") & f.col(REASON).isNull())
            known = (
                {} if kinds is None else {field.name.lower(): field.dataType.simpleString() for field in kinds.fields}
            )
            fields = inferred(own, {**known, **chosen})
        fields = fields if kinds is None else as_in_table(fields, kinds, name)
        kinds = kinds or parse_schema(", ".join(f"`{field.name}` {field.type}" for field in fields))
        layouts.append(Layout(schema, fields))
    return layouts


def typed_by(changes: DataFrame, layouts: Sequence[Layout], keys: Sequence[str]) -> DataFrame:
    """The changes that are good so far, with the columns of all layouts."""
    good = changes.where(f.col(REASON).isNull())
    parts = [typed(good.where(f.col(SCHEMA) == layout.schema), layout.fields, keys) for layout in layouts]
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), parts)


_WHOLE: Final = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
"""Types of whole numbers, and their digits."""
_DECIMAL: Final = re.compile(r"decimal\((\d+),(-?\d+)\)")


def as_in_table(fields: Iterable[Field], table: types.StructType, name: str) -> list[Field]:
    """The same columns with the types that a table has. InvalidSetting if values of one could be lost by that."""
    known = {field.name.lower(): field.dataType.simpleString().lower() for field in table.fields}

    def fitted(field: Field) -> Field:
        kind = known.get(field.name.lower(), "")
        if not kind or kind == _plain(field.type):
            return field
        if not _is_wider(kind, _plain(field.type)):
            raise InvalidSetting(
                f"{name} has the column {field.name} as {kind}, and the changes have {field.type}: nothing of the batch was written. "
                f"Change the column by ALTER TABLE, or choose its type by --schema '{field.name} {kind}'"
            )
        return Field(field.name, field.wire, kind, lambda parsed: field.value(parsed).cast(kind))

    return [fitted(field) for field in fields]


def _plain(kind: str) -> str:
    """A type as Spark writes it."""
    return str(parse_schema(f"a {kind}").fields[0].dataType.simpleString()).lower()


def _is_wider(kind: str, than: str) -> bool:
    """Whether each value of a type is one of another, too."""
    digits, scale = _digits_of(than)
    if found := _DECIMAL.fullmatch(kind):
        whole, behind = int(found[1]) - int(found[2]), int(found[2])
        return digits > 0 and behind >= scale and whole >= digits - scale
    if kind in _WHOLE:
        return scale == 0 and 0 < digits <= _WHOLE[kind] and than in _WHOLE
    if kind == "double":
        return than in ("float", "tinyint", "smallint", "int")
    return kind == "string" and "<" not in than and than != "binary"


def _digits_of(kind: str) -> tuple[int, int]:
    """Digits and scale of a number; 0 digits for other types."""
    if found := _DECIMAL.fullmatch(kind):
        return int(found[1]), int(found[2])
    return _WHOLE.get(kind, 0), 0
